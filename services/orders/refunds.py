"""Money that goes back: a row first, with a key of its own, then the provider, then the entry."""

from typing import Any

from sqlalchemy.dialects.postgresql import insert

from services.orders.steps import Charge, Order, Refund, backed
from services.orders.tables import refund as refund_table
from shared.postgres import AsyncConnection

OVERSELL = "oversell"  # who asks, and why, when the stock sold more than there is


def row_of(charge: Charge, *, reason: str, asked_by: str) -> dict[str, Any]:
    """The rest of a charge is to go back. The key follows from the charge and from what was given back of it before,
    so asking twice is asking once.
    """
    return {
        "provider": charge.provider, "charge_ref": charge.charge_ref, "currency": charge.currency, "reason": reason,
        "amount_minor": charge.amount_minor - charge.refunded_minor, "asked_by": asked_by,
        "idem_key": f"refund:{charge.charge_ref}:{charge.refunded_minor}",
    }  # fmt: skip


async def ask(connection: AsyncConnection, seen: Order, charge: Charge, *, reason: str, asked_by: str) -> bool:
    """Asks for the rest of a charge to go back, in the caller's transaction; a worker sends it. False: it was asked."""
    row = {"reference": seen.reference, "status": "requested", **row_of(charge, reason=reason, asked_by=asked_by)}
    asked = await connection.execute(insert(refund_table).values(row).on_conflict_do_nothing())
    return bool(asked.rowcount)


def status_after(seen: Order, refund: Refund) -> str | None:
    """The order's status once this refund of the charge that backs it is done; nothing if it keeps the one it has."""
    if not backed(seen) or refund.charge_ref != seen.charge_ref:
        return None
    backing = next(charge for charge in seen.charges if charge.charge_ref == seen.charge_ref)
    waiting = sum(r.amount_minor for r in seen.refunds if r.charge_ref == seen.charge_ref and r.id != refund.id)
    status = "refunded" if backing.refunded_minor - waiting >= backing.amount_minor else "partially_refunded"
    return status if status != seen.status else None
