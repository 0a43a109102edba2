"""Reading orders, and changing one under a lease: each change is one transaction that a lost lease makes fail.

A worker that slept past its lease finds another's in the row, and nothing it still wants to write is written.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, func, text, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.payments.provider import ProviderCharge
from services.orders.states import attempt_after, may_become
from services.orders.steps import Attempt, Charge, Line, Order, Refund
from services.orders.tables import checkout_command, money_entry, order, outbox, payment_attempt
from shared.clock import to_datetime
from shared.contracts.events import Event
from shared.outbox import tell
from shared.postgres import AsyncConnection, AsyncEngine, statement

_TAKE = statement(__package__, "take")
_TAKE_ONE = statement(__package__, "take_one")
_LOAD = statement(__package__, "load")
REFERENCES_MAX = 1000
NOW = func.clock_timestamp()


class LeaseLost(Exception):
    """Another worker has this order now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to change one order for a while."""

    reference: str
    owner: str
    seconds: float


async def take(engine: AsyncEngine, *, many: int, event_max: int, lease_s: float) -> list[Lease]:
    """The next due orders, events in turn, now ours for `lease_s`."""
    owner = uuid.uuid4().hex
    async with engine.begin() as connection:
        rows = await connection.execute(
            _TAKE, {"many": many, "event_max": event_max, "lease": owner, "lease_s": lease_s}
        )
        return [Lease(row.reference, owner, lease_s) for row in rows]


async def take_one(engine: AsyncEngine, reference: str, *, lease_s: float) -> Lease | None:
    """This order, if it is due and nobody has it."""
    owner = uuid.uuid4().hex
    async with engine.begin() as connection:
        row = (
            await connection.execute(_TAKE_ONE, {"reference": reference, "lease": owner, "lease_s": lease_s})
        ).first()
    return Lease(reference, owner, lease_s) if row else None


async def read(engine: AsyncEngine, reference: str) -> Order | None:
    """One order as it is now; nothing for a tombstone."""
    return (await read_many(engine, [reference])).get(reference)


async def read_many(engine: AsyncEngine, references: Sequence[str]) -> dict[str, Order]:
    """Orders as they are now, by reference."""
    assert len(references) <= REFERENCES_MAX
    async with engine.connect() as connection:
        rows = await connection.execute(_LOAD, {"references": list(references)})
        return {row.reference: _order(row) for row in rows}


def _order(row: Row[Any]) -> Order:
    columns = dict(row._mapping)  # noqa: SLF001 - the public name of a row's mapping
    parts = {"lines": Line, "attempts": Attempt, "charges": Charge, "refunds": Refund}
    for name, part in parts.items():
        columns[name] = tuple(part(**each) for each in columns[name])
    return Order(**columns)


async def change(
    connection: AsyncConnection, lease: Lease, seen: Order, *, to: str | None = None, **values: Any
) -> None:
    """Changes the leased order and renews the lease. Raises `LeaseLost` if it is not ours in the state we saw."""
    if to is not None:
        assert may_become(seen.status, to), f"{seen.status} never becomes {to}"
        values["status"] = to
    result = await connection.execute(
        update(order)
        .where(order.c.reference == lease.reference, order.c.lease == lease.owner, order.c.status == seen.status)
        .values(
            version=func.greatest(order.c.version + 1, _now_ms()),
            changed_at=func.clock_timestamp(),
            lease_until=_from_now(lease.seconds),
            **values,
        )
    )
    if result.rowcount != 1:
        raise LeaseLost(lease.reference)


def nudged_since(seen: Order) -> ColumnElement[bool]:
    """Whether something happened to the order after it was seen."""
    return order.c.nudge != seen.nudge


async def rest(engine: AsyncEngine, lease: Lease, seen: Order, *, due_in_s: float | None, errors: int = 0) -> None:
    """Gives the lease back. Whatever nudged the order since it was seen makes it due at once."""
    async with engine.begin() as connection:
        await connection.execute(
            text(
                'UPDATE orders."order" SET lease = NULL, lease_until = NULL, errors = :errors, due_at = CASE'
                " WHEN nudge <> :nudge THEN now()"
                " ELSE clock_timestamp() + make_interval(secs => CAST(:due_in_s AS double precision)) END"
                " WHERE reference = :reference AND lease = :owner"
            ),
            {"errors": errors, "nudge": seen.nudge, "due_in_s": due_in_s, "reference": lease.reference,
             "owner": lease.owner},
        )  # fmt: skip


async def nudge(connection: AsyncConnection, reference: str) -> Row[Any]:
    """Makes an order due now, whoever has it, and answers how it stands; its row stays locked for this transaction."""
    nudged = await connection.execute(
        update(order)
        .where(order.c.reference == reference)
        .values(nudge=order.c.nudge + 1, due_at=NOW)
        .returning(
            order.c.status,
            order.c.total_minor,
            order.c.currency,
            order.c.cancel_asked_at.is_not(None).label("cancel_asked"),
            (order.c.expires_at <= NOW).label("late"),
        )
    )
    return nudged.one()


async def set_attempt(connection: AsyncConnection, attempt: Attempt, reference: str, **values: Any) -> None:
    """Changes an attempt whose order is leased and was changed in this transaction before."""
    await connection.execute(
        update(payment_attempt)
        .where(payment_attempt.c.reference == reference, payment_attempt.c.n == attempt.n)
        .values(changed_at=func.clock_timestamp(), **values)
    )


async def record_charges(
    connection: AsyncConnection, seen: Order, provider: str, charges: Sequence[ProviderCharge]
) -> None:
    """What the provider says of its charges, forward only: attempts move on, money that moved is entered once."""
    by_key = {attempt.provider_key: attempt for attempt in seen.attempts}
    for charge in charges:
        if charge.reference != seen.reference:
            continue
        attempt = by_key.get(charge.key)
        if attempt is not None:
            status = attempt_after(attempt.status, charge.status)
            await set_attempt(
                connection, attempt, seen.reference, status=status, provider_ref=charge.charge_ref,
                checkout_url=charge.checkout_url, reason=charge.reason,
            )  # fmt: skip
        if charge.status == "succeeded":
            await enter_money(
                connection, seen.reference, kind="charge", provider=provider, amount_minor=charge.amount_minor,
                currency=charge.currency, charge_ref=charge.charge_ref, provider_ref=charge.charge_ref,
                occurred_at=to_datetime(charge.occurred_at_ms),
            )  # fmt: skip


async def enter_money(connection: AsyncConnection, reference: str, **entry: Any) -> None:
    """One entry for each id the provider gives, however often we hear of it."""
    await connection.execute(insert(money_entry).values(reference=reference, **entry).on_conflict_do_nothing())


async def finish_command(connection: AsyncConnection, reference: str, kind: str, *, error: str | None = None) -> None:
    """Closes the open command of this kind."""
    await connection.execute(
        update(checkout_command)
        .where(
            checkout_command.c.reference == reference,
            checkout_command.c.command_type == kind,
            checkout_command.c.processed_at.is_(None),
        )
        .values(
            status="failed" if error else "completed",
            attempts=checkout_command.c.attempts + 1,
            processed_at=func.clock_timestamp(),
            error_message=error,
        )
    )


async def tell_of(connection: AsyncConnection, seen: Order, kind: str, *, status: str, **after: Any) -> None:
    """Tells the suite what became of an order, in the transaction that made it so."""
    await tell(connection, outbox, [order_event(seen, kind, status=status, **after)])


def order_event(seen: Order, kind: str, *, status: str, **after: Any) -> Event:
    """`order.<kind>` with what consumers need to act without asking."""
    _, _, holder = seen.principal.partition(":")
    return Event(
        type=f"order.{kind}",
        event_id=seen.event_id,
        aggregate=f"order:{seen.reference}",
        version=seen.version + 1,
        before={"status": seen.status},
        after={
            "reference": seen.reference, "event_id": seen.event_id, "status": status, "holder": holder,
            "lane": seen.lane, "join_seq": seen.join_seq, "reservation_id": seen.reservation_id,
            "total_minor": seen.total_minor, "currency": seen.currency, **after,
        },
    )  # fmt: skip


def _now_ms() -> ColumnElement[Any]:
    return text("(extract(epoch FROM clock_timestamp()) * 1000)::bigint")  # type: ignore[return-value]


def _from_now(seconds: float) -> ColumnElement[Any]:
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
