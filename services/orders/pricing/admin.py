"""What operators change about prices: an event's fees and taxes, and its promo codes.

Every change is written to the price audit log with who, when, why, before and after; a request that changes nothing
writes nothing. Operators of one event take turns by locking its row, which sales only read.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from services.orders.pricing.quote import TicketPrice, refusals, require_code_in_steps
from services.orders.problems import UnknownPromoCode
from services.orders.tables import audit_log, event_price, order, promo_code, promo_redemption
from shared.audit_log import Actor
from shared.contracts.admin.prices import (
    AmountsChecked,
    PromoCodeAnswer,
    PromoCodeChanged,
    PromoCodePage,
    PromoCodeRequest,
    PromoCodeUse,
    PromoCodeUsePage,
)
from shared.contracts.event_file import EventFile
from shared.contracts.fields import code_key
from shared.contracts.prices import PriceRules
from shared.errors.problems import InvalidRequest, UnknownEvent
from shared.payment_provider import Provider
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.postgres.pages import PageRequest
from shared.rules.money import format_money

Row = dict[str, Any]
WRONG_CODES_MAX = 20


CODE_COLUMNS = tuple(c.name for c in promo_code.c if c.name not in ("event_id", "created_at"))


async def apply(connection: AsyncConnection, file: EventFile, *, actor: str, reason: str | None) -> bool:
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
        connection, "apply", Actor(actor, reason), subject=f"prices:{file.event_id}", before=before, after=after
    )  # fmt: skip
    return True


async def stored_rules(connection: AsyncConnection, event_id: str) -> PriceRules:
    """The event's fees and taxes. Raises `UnknownEvent`."""
    query = select(event_price.c.rules).where(event_price.c.event_id == event_id)
    rules = await connection.scalar(query)
    if rules is None:
        raise UnknownEvent
    return PriceRules.model_validate(rules)


async def check_stored_amounts(
    db: AsyncEngine, event_id: str, prices_minor: Iterable[int], providers: Mapping[str, Provider]
) -> AmountsChecked:
    """Raises `UnknownEvent`."""
    columns, code = event_price.c, promo_code.c
    async with db.connect() as connection:
        query = select(columns.rules, columns.currency).where(columns.event_id == event_id)
        event = (await connection.execute(query)).one_or_none()
        if event is None:
            raise UnknownEvent
        step = max(provider.limits(event.currency).step_minor for provider in providers.values())
        query = select(code.code, code.amount_minor).where(code.event_id == event_id, code.stopped_at.is_(None))
        wrong = query.where(code.amount_minor % step != 0).order_by(code.code).limit(WRONG_CODES_MAX)
        codes = (await connection.execute(wrong)).all() if step > 1 else []
    tickets = [TicketPrice(f"a ticket of {format_money(minor, event.currency)}", minor) for minor in prices_minor]
    found = refusals(tickets, PriceRules.model_validate(event.rules), event.currency, providers)
    in_steps = f"takes off no multiple of {format_money(step, event.currency)}."
    return AmountsChecked(refusals=found + [f"promo code {row.code}: {in_steps}" for row in codes])


async def put_code(
    db: AsyncEngine, event_id: str, code: str, request: PromoCodeRequest, *, actor: str,
    providers: Mapping[str, Provider],
) -> PromoCodeChanged:  # fmt: skip
    """Creates or replaces the code, which is given as it is to be shown; a deactivated one is active again. Raises
    `UnknownEvent`, `InvalidRequest`.
    """
    key = code_key(code)
    wanted = {**request.model_dump(exclude={"reason"}), "written": code if code != key else None, "stopped_at": None}

    def decide(before: Row | None, event: Any) -> Row | None:
        require_code_in_steps(request.amount_minor, event.currency, providers)
        if unknown := set(request.section_ids) - set(event.section_ids):
            raise InvalidRequest(f"section_ids: the event has no section {', '.join(sorted(unknown))}.")
        return wanted if before is None or before != {**before, **wanted} else None

    return await _change(db, event_id, key, decide, actor=actor, action="put-code", reason=request.reason)


async def deactivate_code(
    db: AsyncEngine, event_id: str, code: str, *, actor: str, reason: str | None
) -> PromoCodeChanged:
    """It takes nothing off new orders; orders that were placed keep their discount. Raises `UnknownPromoCode`."""

    def decide(before: Row | None, _: Any) -> Row | None:
        if before is None:
            raise UnknownPromoCode
        return None if before["stopped_at"] else {**before, "stopped_at": func.now()}

    return await _change(db, event_id, code, decide, actor=actor, action="stop-code", reason=reason)


async def _change(
    db: AsyncEngine, event_id: str, code: str, decide: Callable[[Row | None, Any], Row | None], *, actor: str,
    action: str, reason: str | None,
) -> PromoCodeChanged:  # fmt: skip
    """Writes what `decide` makes of the code as it is and of the event's `currency` and `section_ids`, under the lock
    of the event; nothing if that is None. Raises `UnknownEvent`.
    """
    columns = [promo_code.c[name] for name in CODE_COLUMNS]
    mine = promo_code.c.event_id == event_id, promo_code.c.code == code
    async with db.begin() as connection:
        query = select(event_price.c.currency, event_price.c.section_ids).where(event_price.c.event_id == event_id)
        event = (await connection.execute(query.with_for_update())).one_or_none()
        if event is None:
            raise UnknownEvent
        found = (await connection.execute(select(*columns).where(*mine))).mappings().one_or_none()
        before = dict(found) if found is not None else None
        values = decide(before, event)
        if values is not None:
            put = upsert(promo_code).values({"event_id": event_id, "code": code, **values})
            put = put.on_conflict_do_update(index_elements=["event_id", "code"], set_=values)
            after = (await connection.execute(put.returning(*columns))).mappings().one()
            await audit_log.write(
                connection, action, Actor(actor, reason), subject=f"prices:{event_id}",
                before=before and json_row(before), after=json_row(after),
            )  # fmt: skip
    answer = await get_code(db, event_id, code)
    return PromoCodeChanged(**answer.model_dump(), changed=values is not None)


def json_row(row: Mapping[Any, Any]) -> Row:
    """A row as JSON takes it: percentages as decimals in text without trailing zeros, times with their zone."""
    fields: Row = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    if fields.get("percent") is not None:
        fields["percent"] = f"{fields['percent'].normalize():f}"
    return fields


def _answer(row: Mapping[Any, Any]) -> PromoCodeAnswer:
    """The code as it is shown, with its uses."""
    fields = json_row(row)
    written = fields.pop("written")
    return PromoCodeAnswer.model_validate(fields | ({"code": written} if written else {}))


_UNPAID = order.c.status.in_(("cancelled", "expired")) | (
    (order.c.status == "refunded") & order.c.confirmed_at.is_(None)
)


def _codes_of(event_id: str) -> Select[Any]:
    """An event's codes, each with how many orders use it now."""
    use = promo_redemption.c
    used = select(func.count()).join_from(promo_redemption, order, order.c.reference == use.reference)
    used = used.where(use.event_id == promo_code.c.event_id, use.code == promo_code.c.code, ~_UNPAID)
    query = select(*(promo_code.c[name] for name in CODE_COLUMNS), used.scalar_subquery().label("uses"))
    return query.where(promo_code.c.event_id == event_id)


async def get_code(db: AsyncEngine, event_id: str, code: str) -> PromoCodeAnswer:
    """Raises `UnknownPromoCode`."""
    async with db.connect() as connection:
        found = (await connection.execute(_codes_of(event_id).where(promo_code.c.code == code))).mappings().first()
    if found is None:
        raise UnknownPromoCode
    return _answer(found)


async def list_codes(db: AsyncEngine, event_id: str, page: PageRequest[str]) -> PromoCodePage:
    """In alphabetical order."""
    rows, following = await page.read(db, _codes_of(event_id), promo_code.c.code)
    return PromoCodePage(promo_codes=[_answer(row) for row in rows], next=following)


async def list_redemptions(db: AsyncEngine, event_id: str, code: str, page: PageRequest[str]) -> PromoCodeUsePage:
    """The orders that used the code, newest first; those that ended unpaid do not count against its limits."""
    use = promo_redemption.c
    query = select(use.reference, order.c.status, (~_UNPAID).label("counts"), use.created_at.label("at"))
    query = query.join(order, order.c.reference == use.reference).where(use.event_id == event_id, use.code == code)
    rows, following = await page.read(db, query, use.created_at, use.reference)
    return PromoCodeUsePage(uses=[PromoCodeUse.model_validate(dict(row)) for row in rows], next=following)
