"""The admin API that searches orders."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from services.orders.api.orders import PageSize
from services.orders.order.search import Search, find
from services.orders.state import state_of
from shared.contracts.admin.orders import OrderPage
from shared.security.auth import AnOperator
from shared.web.fields import EventId
from shared.web.routes import REFERENCE

router = APIRouter(prefix="/admin/orders", tags=["admin"])
StatusQuery = Annotated[str | None, Query(alias="status", pattern="^[a-z_]{1,32}$")]
TextQuery = Annotated[str | None, Query(min_length=2, max_length=200, pattern=r"^[^\x00]*$")]
AfterQuery = Annotated[str | None, Query(alias="after", pattern=f"^{REFERENCE}$")]


@router.get("", summary="Search orders")
async def search(
    request: Request, operator: AnOperator, event_id: EventId | None = None, status: StatusQuery = None,
    q: TextQuery = None, since: AwareDatetime | None = None, until: AwareDatetime | None = None,
    after: AfterQuery = None, page_size: PageSize = 50,
) -> OrderPage:  # fmt: skip
    """`q` matches names in part; references, e-mail addresses, seats and charges exactly. `after` is the page before's
    `next_after`.
    """
    state = state_of(request)
    wanted = Search(
        q=q, event_id=event_id, status=status, since=since, until=until, after=after, page_size=page_size
    )  # fmt: skip
    return OrderPage.model_validate(await find(state.db, wanted, providers=state.providers))
