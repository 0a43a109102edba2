"""What operators say about prices: an event's fees and taxes, and its promo codes. Every change is kept with who, when,
why, before and after; saying the same again changes nothing.

Operators of an event take turns by its row, which sales only read.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Table, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from services.orders.api.schemas import PromoCodeAsk
from services.orders.pricing.tables import event_price, price_change, promo_code, promo_redemption
from services.orders.problems import UnknownPromoCode
from services.orders.tables import order
from shared.contracts.event_file import EventFile
from shared.contracts.prices import PriceRules
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.web.problems import InvalidRequest, UnknownEvent

Row = dict[str, Any]
CODE_COLUMNS = tuple(c.name for c in promo_code.c if c.name not in ("event_id", "created_at"))


async def apply(connection: AsyncConnection, file: EventFile, *, actor: str) -> bool:
    """Fees and taxes as the event file has them, in the caller's transaction. True if that changed anything."""
    rules = PriceRules(fees=file.fees, taxes=file.taxes).model_dump(mode="json")
    after = {"currency": file.currency, "section_ids": [s.section_id for s in file.sections], "rules": rules}
    new = upsert(event_price).values(event_id=file.event_id, **after).on_conflict_do_nothing()
    is_new = bool((await connection.execute(new)).rowcount)
    mine = event_price.c.event_id == file.event_id
    now = (await connection.execute(select(event_price).where(mine).with_for_update())).mappings().one()
    before = None if is_new else {name: now[name] for name in after}
    if before == after:
        return False
    await connection.execute(update(event_price).where(mine).values(**after, changed_at=func.now()))
    await _note(connection, file.event_id, actor=actor, action="apply", before=before, after=after)
    return True


async def put_code(db: AsyncEngine, event_id: str, code: str, ask: PromoCodeAsk, *, actor: str) -> bool:
    """Makes the code, or makes it what is asked for; a stopped one stands again. True if that changed anything."""
    wanted = {**ask.model_dump(exclude={"reason"}), "stopped_at": None}

    async def work(connection: AsyncConnection, before: Row | None, event: Row) -> bool:
        if unknown := set(ask.section_ids) - set(event["section_ids"]):
            raise InvalidRequest(f"section_ids: the event has no section {', '.join(sorted(unknown))}.")
        if before is not None and all(before[name] == value for name, value in wanted.items()):
            return False
        put = upsert(promo_code).values(event_id=event_id, code=code, **wanted)
        await connection.execute(put.on_conflict_do_update(index_elements=["event_id", "code"], set_=wanted))
        return True

    return await _change(db, event_id, code, work, actor=actor, action="put-code", reason=ask.reason)


async def stop_code(db: AsyncEngine, event_id: str, code: str, *, actor: str, reason: str | None) -> bool:
    """From now on it takes nothing off; orders that were placed keep it. Raises `UnknownPromoCode`."""

    async def work(connection: AsyncConnection, before: Row | None, event: Row) -> bool:
        if before is None:
            raise UnknownPromoCode
        if before["stopped_at"]:
            return False
        mine = promo_code.c.event_id == event_id, promo_code.c.code == code
        await connection.execute(update(promo_code).where(*mine).values(stopped_at=func.now()))
        return True

    return await _change(db, event_id, code, work, actor=actor, action="stop-code", reason=reason)


async def _change(
    db: AsyncEngine, event_id: str, code: str,
    work: Callable[[AsyncConnection, Row | None, Row], Awaitable[bool]], *,
    actor: str, action: str, reason: str | None,
) -> bool:  # fmt: skip
    async with db.begin() as connection:
        query = select(event_price).where(event_price.c.event_id == event_id).with_for_update()
        event = (await connection.execute(query)).mappings().one_or_none()
        if event is None:
            raise UnknownEvent
        before = await _code(connection, event_id, code)
        if not await work(connection, before, dict(event)):
            return False
        after = await _code(connection, event_id, code)
        assert after is not None, "it was put or was there"
        told = {"before": before and plain(before), "after": plain(after)}
        await _note(connection, event_id, actor=actor, action=action, code=code, reason=reason, **told)
    return True


async def _code(connection: AsyncConnection, event_id: str, code: str) -> Row | None:
    mine = promo_code.c.event_id == event_id, promo_code.c.code == code
    row = (await connection.execute(select(*(promo_code.c[name] for name in CODE_COLUMNS)).where(*mine))).mappings()
    found = row.one_or_none()
    return dict(found) if found else None


def plain(row: Mapping[str, Any]) -> Row:
    """As JSON takes it: percentages as people write them, times with their zone."""
    told: Row = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    if told.get("percent") is not None:
        told["percent"] = f"{told['percent'].normalize():f}"
    return told


async def _note(connection: AsyncConnection, event_id: str, **line: Any) -> None:
    await connection.execute(insert(price_change).values(event_id=event_id, **line))


UNPAID = order.c.status.in_(("cancelled", "expired")) | (
    (order.c.status == "refunded") & order.c.confirmed_at.is_(None)
)
USES = (
    select(promo_redemption, order.c.status, (~UNPAID).label("counts"))
    .join(order, order.c.reference == promo_redemption.c.reference)
    .subquery("uses")
)


async def codes(db: AsyncEngine, event_id: str, *, code: str | None, page: int, page_size: int) -> list[Row]:
    """Codes with how often each is used now, by name."""
    used = select(func.count()).where(USES.c.event_id == promo_code.c.event_id, USES.c.code == promo_code.c.code)
    columns = [promo_code.c[name] for name in CODE_COLUMNS]
    query = select(*columns, used.where(USES.c.counts).scalar_subquery().label("uses"))
    query = query.where(promo_code.c.event_id == event_id).order_by(promo_code.c.code)
    if code is not None:
        query = query.where(promo_code.c.code == code)
    return [plain(row) for row in await _page(db, query, page, page_size)]


async def uses(db: AsyncEngine, event_id: str, code: str, *, page: int, page_size: int) -> list[Row]:
    """Which orders took the code, newest first; those that ended unpaid gave their use back and do not count."""
    query = select(USES.c.reference, USES.c.status, USES.c.counts, USES.c.created_at.label("at"))
    query = query.where(USES.c.event_id == event_id, USES.c.code == code)
    return [plain(row) for row in await _page(db, query.order_by(USES.c.created_at.desc()), page, page_size)]


async def changes(db: AsyncEngine, event_id: str, *, page: int, page_size: int) -> list[Row]:
    """The audit, newest first."""
    table: Table = price_change
    query = select(*(column for column in table.c if column.name != "event_id")).where(table.c.event_id == event_id)
    return [plain(row) for row in await _page(db, query.order_by(table.c.id.desc()), page, page_size)]


async def _page(db: AsyncEngine, query: Any, page: int, page_size: int) -> list[Mapping[str, Any]]:
    async with db.connect() as connection:
        rows = await connection.execute(query.limit(page_size).offset((page - 1) * page_size))
        return [dict(row) for row in rows.mappings()]
