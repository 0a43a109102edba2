"""Money that goes back: a row first, with a key of its own, then the provider, then the entry.

The key follows from the charge and from what was given back of it before, so asking twice is asking once.
"""

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert

from services.orders import ledger
from services.orders.ledger import Lease
from services.orders.steps import Charge, Order, Refund, backed
from services.orders.tables import refund as refund_table
from shared.postgres import AsyncConnection


async def ask(connection: AsyncConnection, seen: Order, charge: Charge, *, reason: str, asked_by: str) -> None:
    """Asks for the rest of a charge to go back; a worker sends it."""
    await connection.execute(
        insert(refund_table)
        .values(
            reference=seen.reference,
            provider=charge.provider,
            charge_ref=charge.charge_ref,
            amount_minor=charge.amount_minor - charge.refunded_minor,
            currency=charge.currency,
            reason=reason,
            asked_by=asked_by,
            idem_key=f"refund:{charge.charge_ref}:{charge.refunded_minor}",
            status="requested",
        )
        .on_conflict_do_nothing()
    )


async def settle(
    connection: AsyncConnection, lease: Lease, seen: Order, refund: Refund, *, refund_ref: str | None
) -> None:
    """Enters what the provider did with a refund; without a reference it refused, and a person must look."""
    status = _after(seen, refund) if refund_ref else None
    await ledger.change(connection, lease, seen, to=status)
    await connection.execute(
        update(refund_table)
        .where(refund_table.c.id == refund.id)
        .values(status="succeeded" if refund_ref else "refused", done_at=func.clock_timestamp())
    )
    if refund_ref:
        await ledger.enter_money(
            connection, seen.reference, kind="refund", provider=refund.provider, amount_minor=refund.amount_minor,
            currency=refund.currency, charge_ref=refund.charge_ref, provider_ref=refund_ref, occurred_at=func.now(),
        )  # fmt: skip
    if status:
        await ledger.finish_command(connection, seen.reference, "refund")
        await ledger.tell_of(connection, seen, "refunded", status=status, refunded_minor=refund.amount_minor)


def _after(seen: Order, refund: Refund) -> str | None:
    """The order's status once this refund of the charge that backs it is done; nothing if it keeps the one it has."""
    if not backed(seen) or refund.charge_ref != seen.charge_ref:
        return None
    backing = next(charge for charge in seen.charges if charge.charge_ref == seen.charge_ref)
    waiting = sum(r.amount_minor for r in seen.refunds if r.charge_ref == seen.charge_ref and r.id != refund.id)
    status = "refunded" if backing.refunded_minor - waiting >= backing.amount_minor else "partially_refunded"
    return status if status != seen.status else None
