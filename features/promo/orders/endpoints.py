"""The operators' API of promo codes: create, replace, deactivate and list them, and list their uses.

Every change is written to the price audit log with who, when, why, before and after; a request that changes nothing
writes nothing. Operators of one event take turns by locking its row, which sales only read.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy import Select, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from features.promo.orders.tables import promo_code, promo_redemption
from features.promo.schemas import (
    PromoCodeAnswer,
    PromoCodeChanged,
    PromoCodePage,
    PromoCodeRequest,
    PromoCodeUse,
    PromoCodeUsePage,
)
from services.orders.state import OrdersState
from services.orders.tables import audit_log, event_price, order
from shared.audit_log import Actor
from shared.contracts.fields import TYPED_MAX, NewCode, code_as_shown, code_key
from shared.errors.problems import InvalidRequest, Problem, UnknownEvent
from shared.payment_provider import Provider
from shared.postgres.engine import AsyncEngine
from shared.postgres.pages import PageRequest, PageSizeQuery
from shared.rules.currencies import format_money
from shared.security.auth import AnOperator, Viewer
from shared.web.request import EventIdPath, ReasonQuery, ReferenceQuery

Row = dict[str, Any]
CODE_COLUMNS = tuple(c.name for c in promo_code.c if c.name not in ("event_id", "created_at"))
CodePath = Annotated[NewCode, Path(max_length=TYPED_MAX, description="Percent-encoded, if it is not plain.")]
CodeQuery = Annotated[NewCode | None, Query(max_length=TYPED_MAX)]
router = APIRouter(prefix="/admin/orders/events/{event_id}/promo-codes", tags=["prices"])


class UnknownPromoCode(Problem, status=404):
    """This event has no promo code with this name."""


@router.put("/{code}", operation_id="put_promo_code", summary="Create or replace a promo code")
async def put_code(
    state: OrdersState, operator: AnOperator, event_id: EventIdPath, code: CodePath, body: PromoCodeRequest
) -> PromoCodeChanged:
    """A deactivated code is active again."""
    shown, key = code_as_shown(code), code_key(code)
    wanted = {**body.model_dump(exclude={"reason"}), "written": shown if shown != key else None, "stopped_at": None}

    def decide(before: Row | None, event: Any) -> Row | None:
        _require_in_steps(body.amount_minor, event.currency, state.providers)
        if unknown := set(body.section_ids) - set(event.section_ids):
            raise InvalidRequest(f"section_ids: the event has no section {', '.join(sorted(unknown))}.")
        return wanted if before is None or before != {**before, **wanted} else None

    return await _change(state.db, event_id, key, decide, Actor(operator.name, body.reason), action="put-code")


@router.delete("/{code}", operation_id="deactivate_promo_code", summary="Deactivate a promo code")
async def deactivate_code(
    state: OrdersState, operator: AnOperator, event_id: EventIdPath, code: CodePath, reason: ReasonQuery = None
) -> PromoCodeChanged:
    """It takes nothing off any more. It stays in the list, and so do its uses."""

    def decide(before: Row | None, _: Any) -> Row | None:
        if before is None:
            raise UnknownPromoCode
        return None if before["stopped_at"] else {**before, "stopped_at": func.now()}

    return await _change(state.db, event_id, code_key(code), decide, Actor(operator.name, reason), action="stop-code")


@router.get("", operation_id="list_promo_codes", summary="List promo codes and their uses")
async def list_codes(
    request: Request, state: OrdersState, operator: Viewer, event_id: EventIdPath, after: CodeQuery = None,
    page_size: PageSizeQuery = 50,
) -> PromoCodePage:  # fmt: skip
    """In alphabetical order."""
    page = PageRequest(request.url, after and code_key(after), page_size, newest_first=False)
    rows, following = await page.read(state.db, _codes_of(event_id), promo_code.c.code)
    return PromoCodePage(promo_codes=[_answer(row) for row in rows], next=following)


@router.get("/{code}", operation_id="read_promo_code", summary="Get a promo code")
async def get_code(state: OrdersState, operator: Viewer, event_id: EventIdPath, code: CodePath) -> PromoCodeAnswer:
    return await _read(state.db, event_id, code_key(code))


@router.get(
    "/{code}/uses", operation_id="list_promo_code_uses", summary="List orders that used a promo code, newest first"
)
async def list_uses(
    request: Request, state: OrdersState, operator: Viewer, event_id: EventIdPath, code: CodePath,
    before: ReferenceQuery = None, page_size: PageSizeQuery = 50,
) -> PromoCodeUsePage:  # fmt: skip
    use, page = promo_redemption.c, PageRequest(request.url, before, page_size)
    query = select(use.reference, order.c.status, (~_UNPAID).label("counts"), use.created_at.label("at"))
    query = query.join(order, order.c.reference == use.reference)
    query = query.where(use.event_id == event_id, use.code == code_key(code))
    rows, following = await page.read(state.db, query, use.created_at, use.reference)
    return PromoCodeUsePage(uses=[PromoCodeUse.model_validate(dict(row)) for row in rows], next=following)


def _require_in_steps(amount_minor: int | None, currency: str, providers: Mapping[str, Provider]) -> None:
    """What a code takes off must leave an amount that can be charged. Raises `InvalidRequest`."""
    for name, provider in providers.items():
        step = provider.limits(currency).step_minor
        if (amount_minor or 0) % step:
            off = format_money(amount_minor or 0, currency)
            raise InvalidRequest(
                f"amount_minor: {off} is no multiple of {format_money(step, currency)}, as {name} needs."
            )


async def _change(
    db: AsyncEngine, event_id: str, code: str, decide: Callable[[Row | None, Any], Row | None], actor: Actor, *,
    action: str,
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
                connection, action, actor, subject=f"prices:{event_id}",
                before=before and _json_row(before), after=_json_row(after),
            )  # fmt: skip
    answer = await _read(db, event_id, code)
    return PromoCodeChanged(**answer.model_dump(), changed=values is not None)


def _json_row(row: Mapping[Any, Any]) -> Row:
    """A row as JSON takes it: percentages as decimals in text without trailing zeros, times with their zone."""
    fields: Row = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    if fields.get("percent") is not None:
        fields["percent"] = f"{fields['percent'].normalize():f}"
    return fields


def _answer(row: Mapping[Any, Any]) -> PromoCodeAnswer:
    """The code as it is shown, with its uses."""
    fields = _json_row(row)
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


async def _read(db: AsyncEngine, event_id: str, code: str) -> PromoCodeAnswer:
    """Raises `UnknownPromoCode`."""
    async with db.connect() as connection:
        found = (await connection.execute(_codes_of(event_id).where(promo_code.c.code == code))).mappings().first()
    if found is None:
        raise UnknownPromoCode
    return _answer(found)
