"""The admin API that searches orders."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from services.orders.state import state_of
from services.orders.store.search import Search, find
from shared.contracts.admin.orders import OrderPage
from shared.contracts.fields import NO_NULL, EventId, tidy
from shared.postgres.pages import PageRequest, PageSizeQuery
from shared.security.auth import AnOperator
from shared.web.parameters import ReferenceQuery

router = APIRouter(prefix="/admin/orders", tags=["admin"])
StatusQuery = Annotated[str | None, Query(alias="status", pattern="^[a-z_]{1,32}$")]
TextQuery = Annotated[str | None, Query(min_length=2, max_length=200, pattern=NO_NULL)]


@router.get("", summary="Search orders")
async def search(
    request: Request, operator: AnOperator, event_id: EventId | None = None, status: StatusQuery = None,
    q: TextQuery = None, since: AwareDatetime | None = None, until: AwareDatetime | None = None,
    mail_failed: bool = False, before: ReferenceQuery = None, page_size: PageSizeQuery = 50,
) -> OrderPage:  # fmt: skip
    """Newest first. `q` matches names in part; references, e-mail addresses, seats and charges exactly. `mail_failed`
    finds those whose buyer could not be mailed.
    """
    state, page = state_of(request), PageRequest(request.url, before, page_size)
    wanted = Search(
        q=q and tidy(q), event_id=event_id, status=status, since=since, until=until, mail_failed=mail_failed
    )
    return await find(state.db, wanted, page, providers=state.providers)
