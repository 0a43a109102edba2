"""What operators change about prices: an event's fees and taxes, and its promo codes.

Every change is written to the price audit log with who, when, why, before and after; a request that changes nothing
writes nothing. Operators of one event take turns by locking its row, which sales only read.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from services.orders.audit import audit_log
from services.orders.pricing.tables import event_price, promo_code, promo_redemption
from services.orders.problems import UnknownPromoCode
from services.orders.tables import order
from shared.contracts.admin.prices import (
    PromoCodeAnswer,
    PromoCodeChanged,
    PromoCodePage,
    PromoCodeRequest,
    PromoCodeUse,
    PromoCodeUsePage,
)
from shared.contracts.event_file import EventFile
from shared.contracts.prices import PriceRules
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.web.problems import InvalidRequest, UnknownEvent

Row = dict[str, Any]
CODE_COLUMNS = tuple(c.name for c in promo_code.c if c.name not in ("event_id", "created_at"))


async def apply(connection: AsyncConnection, file: EventFile, *, actor: str) -> bool:
    """Sets fees and taxes as the event file has them, in the caller's transaction. True if that changed anything."""
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
    await audit_log.write(
        connection, subject=f"prices:{file.event_id}", actor=actor, action="apply", reason=None, before=before,
        after=after,
    )  # fmt: skip
    return True


async def put_code(
    db: AsyncEngine, event_id: str, code: str, request: PromoCodeRequest, *, actor: str
) -> PromoCodeChanged:
    """Creates or replaces the code; a deactivated one is active again. Raises `UnknownEvent`, `InvalidRequest`."""
    wanted = {**request.model_dump(exclude={"reason"}), "stopped_at": None}

    async def work(connection: AsyncConnection, before: Row | None, event: Row) -> bool:
        if unknown := set(request.section_ids) - set(event["section_ids"]):
            raise InvalidRequest(f"section_ids: the event has no section {', '.join(sorted(unknown))}.")
        if before is not None and all(before[name] == value for name, value in wanted.items()):
            return False
        put = upsert(promo_code).values(event_id=event_id, code=code, **wanted)
        await connection.execute(put.on_conflict_do_update(index_elements=["event_id", "code"], set_=wanted))
        return True

    return await _change(db, event_id, code, work, actor=actor, action="put-code", reason=request.reason)


async def deactivate_code(
    db: AsyncEngine, event_id: str, code: str, *, actor: str, reason: str | None
) -> PromoCodeChanged:
    """It takes nothing off new orders; orders that were placed keep their discount. Raises `UnknownPromoCode`."""

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
) -> PromoCodeChanged:  # fmt: skip
    """Runs `work` with the code and its event as they are, under the event's lock; `work` is true if it changed the
    code. Raises `UnknownEvent`.
    """
    async with db.begin() as connection:
        query = select(event_price).where(event_price.c.event_id == event_id).with_for_update()
        event = (await connection.execute(query)).mappings().one_or_none()
        if event is None:
            raise UnknownEvent
        before = await _read_code(connection, event_id, code)
        changed = await work(connection, before, dict(event))
        if changed:
            after = await _read_code(connection, event_id, code)
            assert after is not None, "work has put it, or found it"
            await audit_log.write(
                connection, subject=f"prices:{event_id}", actor=actor, action=action, reason=reason,
                before=before and json_row(before), after=json_row(after),
            )  # fmt: skip
    found = await get_code(db, event_id, code)
    return PromoCodeChanged(**found.model_dump(), changed=changed)


async def _read_code(connection: AsyncConnection, event_id: str, code: str) -> Row | None:
    mine = promo_code.c.event_id == event_id, promo_code.c.code == code
    row = (await connection.execute(select(*(promo_code.c[name] for name in CODE_COLUMNS)).where(*mine))).mappings()
    found = row.one_or_none()
    return dict(found) if found else None


def json_row(row: Mapping[str, Any]) -> Row:
    """A row as JSON takes it: percentages as decimals in text without trailing zeros, times with their zone."""
    fields: Row = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    if fields.get("percent") is not None:
        fields["percent"] = f"{fields['percent'].normalize():f}"
    return fields


_UNPAID = order.c.status.in_(("cancelled", "expired")) | (
    (order.c.status == "refunded") & order.c.confirmed_at.is_(None)
)
_REDEMPTIONS = (
    select(promo_redemption, order.c.status, (~_UNPAID).label("counts"))
    .join(order, order.c.reference == promo_redemption.c.reference)
    .subquery("uses")
)


def _codes_of(event_id: str) -> Select[Any]:
    """An event's codes, each with how many orders use it now."""
    uses = _REDEMPTIONS.c
    used = select(func.count()).where(uses.event_id == promo_code.c.event_id, uses.code == promo_code.c.code)
    columns = [promo_code.c[name] for name in CODE_COLUMNS]
    query = select(*columns, used.where(uses.counts).scalar_subquery().label("uses"))
    return query.where(promo_code.c.event_id == event_id)


async def get_code(db: AsyncEngine, event_id: str, code: str) -> PromoCodeAnswer:
    """Raises `UnknownPromoCode`."""
    found = await _page(db, _codes_of(event_id).where(promo_code.c.code == code), 1, 1)
    if not found:
        raise UnknownPromoCode
    return PromoCodeAnswer.model_validate(found[0])


async def list_codes(db: AsyncEngine, event_id: str, *, page: int, page_size: int) -> PromoCodePage:
    """In alphabetical order."""
    rows = await _page(db, _codes_of(event_id).order_by(promo_code.c.code), page, page_size)
    codes = [PromoCodeAnswer.model_validate(row) for row in rows]
    return PromoCodePage(page=page, page_size=page_size, promo_codes=codes)


async def list_redemptions(db: AsyncEngine, event_id: str, code: str, *, page: int, page_size: int) -> PromoCodeUsePage:
    """The orders that used the code, newest first; those that ended unpaid do not count against its limits."""
    uses = _REDEMPTIONS.c
    query = select(uses.reference, uses.status, uses.counts, uses.created_at.label("at"))
    query = query.where(uses.event_id == event_id, uses.code == code).order_by(uses.created_at.desc())
    rows = [PromoCodeUse.model_validate(row) for row in await _page(db, query, page, page_size)]
    return PromoCodeUsePage(page=page, page_size=page_size, uses=rows)


async def _page(db: AsyncEngine, query: Select[Any], page: int, page_size: int) -> list[Row]:
    async with db.connect() as connection:
        rows = await connection.execute(query.limit(page_size).offset((page - 1) * page_size))
        return [json_row(row) for row in rows.mappings()]
