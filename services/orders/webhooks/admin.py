"""Operators' doors to webhooks: endpoints, what was sent to them, sending again. A secret is shown once."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from services.orders.admin.commands import Why, as_json
from services.orders.api.orders import Page, PageSize
from services.orders.problems import WebhookUrlRefused
from services.orders.state import state_of
from services.orders.webhooks import endpoints
from services.orders.webhooks.address_guard import AddressRefused
from services.orders.webhooks.schemas import NewHook
from shared.security.auth import AnAdmin, AnOperator, Viewer
from shared.web.fields import PlainText

router = APIRouter(prefix="/admin/orders/hooks", tags=["hooks"])
HookIdPath = Annotated[str, Path(pattern="^hook_[0-9a-f]{16}$")]
DeliveryIdPath = Annotated[int, Path(ge=1, le=2**62)]
Reason = Annotated[PlainText, Query()]
DeliveryStatus = Literal["pending", "delivered", "failed"]


@router.get("", summary="List webhook endpoints")
async def list_hooks(request: Request, operator: Viewer) -> dict[str, Any]:
    async with state_of(request).db.connect() as connection:
        return {"hooks": [as_json(row) for row in await endpoints.read_all(connection)]}


@router.post("", status_code=201, summary="Create a webhook endpoint")
async def add_hook(operator: AnAdmin, asked: NewHook, request: Request, response: Response) -> dict[str, Any]:
    """Answers its signing secret, once. By https, to a public address."""
    state = state_of(request)
    if not (asked.url.startswith("https://") or state.settings.webhook_allow_loopback):
        raise WebhookUrlRefused("Webhooks are sent by https only.")
    try:
        await state.sender.check(asked.url)
    except AddressRefused as refused:
        raise WebhookUrlRefused(str(refused)) from refused
    response.headers["cache-control"] = "no-store"
    return as_json(await endpoints.add(state.db, asked, actor=operator.name))


@router.delete("/{hook_id}", status_code=204, summary="Delete a webhook endpoint")
async def remove_hook(operator: AnAdmin, hook_id: HookIdPath, reason: Reason, request: Request) -> None:
    await endpoints.remove(state_of(request).db, hook_id, actor=operator.name, reason=reason)


@router.post("/{hook_id}/enable", summary="Enable a webhook endpoint")
async def enable_hook(operator: AnAdmin, hook_id: HookIdPath, why: Why, request: Request) -> dict[str, Any]:
    state = state_of(request)
    row = await endpoints.enable(state.db, hook_id, actor=operator.name, reason=why.reason)
    state.couriers.wake()
    return as_json(row)


@router.get("/{hook_id}/deliveries", summary="List webhook deliveries of an endpoint")
async def list_deliveries(
    request: Request, operator: Viewer, hook_id: HookIdPath, status: DeliveryStatus | None = None, page: Page = 1,
    page_size: PageSize = 50,
) -> dict[str, Any]:  # fmt: skip
    async with state_of(request).db.connect() as connection:
        found = await endpoints.deliveries(connection, hook_id, status=status, page=page, page_size=page_size)
    return {"page": page, "page_size": page_size, "deliveries": [as_json(row) for row in found]}


@router.post("/deliveries/{delivery_id}/resend", status_code=202, summary="Send a webhook again")
async def resend(operator: AnOperator, delivery_id: DeliveryIdPath, why: Why, request: Request) -> dict[str, Any]:
    state = state_of(request)
    row = await endpoints.resend(state.db, delivery_id, actor=operator.name, reason=why.reason)
    state.couriers.wake()
    return as_json(row)
