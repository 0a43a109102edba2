"""The admin API of webhook endpoints and their deliveries."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from services.orders.state import OrdersState
from services.orders.webhooks import endpoints
from shared.contracts.admin.orders import (
    CreatedWebhookEndpoint,
    DeliveryStatus,
    NewWebhookEndpoint,
    Reason,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookEndpoint,
    WebhookEndpoints,
)
from shared.contracts.fields import PlainText
from shared.postgres.pages import BeforeId
from shared.security.auth import AnAdmin, AnOperator, Viewer

router = APIRouter(prefix="/admin/orders/webhooks", tags=["webhook endpoints"])
EndpointIdPath = Annotated[str, Path(pattern="^ep_[0-9a-f]{16}$")]
DeliveryIdPath = Annotated[int, Path(ge=1, le=2**62)]
ReasonQuery = Annotated[PlainText, Query(alias="reason")]


@router.get("", operation_id="list_webhook_endpoints", summary="List webhook endpoints")
async def list_endpoints(state: OrdersState, operator: Viewer) -> WebhookEndpoints:
    return await endpoints.list_endpoints(state.db)


@router.post("", status_code=201, operation_id="create_webhook_endpoint", summary="Create a webhook endpoint")
async def create_endpoint(
    operator: AnAdmin, new: NewWebhookEndpoint, state: OrdersState, response: Response
) -> CreatedWebhookEndpoint:
    """The URL must be https and lead to a public address. The response has the signing secret, which is shown once."""
    response.headers["cache-control"] = "no-store"
    https_only = not state.settings.webhooks_to_this_machine
    return await endpoints.create(
        state.db, new, sender=state.webhook_dispatcher.sender, https_only=https_only, actor=operator.name
    )


@router.delete(
    "/{endpoint_id}", status_code=204, operation_id="delete_webhook_endpoint", summary="Delete a webhook endpoint"
)
async def delete_endpoint(
    operator: AnAdmin, endpoint_id: EndpointIdPath, reason: ReasonQuery, state: OrdersState
) -> None:
    await endpoints.delete_endpoint(state.db, endpoint_id, actor=operator.name, reason=reason)


@router.post("/{endpoint_id}/enable", operation_id="enable_webhook_endpoint", summary="Enable a webhook endpoint")
async def enable_endpoint(
    operator: AnAdmin, endpoint_id: EndpointIdPath, body: Reason, state: OrdersState
) -> WebhookEndpoint:
    enabled = await endpoints.enable(state.db, endpoint_id, actor=operator.name, reason=body.reason)
    state.webhook_dispatcher.queue.wake()
    return enabled


@router.get(
    "/{endpoint_id}/deliveries",
    operation_id="list_webhook_deliveries",
    summary="List webhook deliveries of an endpoint",
)
async def list_deliveries(
    state: OrdersState, operator: Viewer, endpoint_id: EndpointIdPath, page: BeforeId,
    status: DeliveryStatus | None = None,
) -> WebhookDeliveryPage:  # fmt: skip
    """Newest first."""
    return await endpoints.list_deliveries(state.db, endpoint_id, page, status=status)


@router.post(
    "/deliveries/{delivery_id}/resend", status_code=202, operation_id="resend_webhook", summary="Send a webhook again"
)
async def resend(
    operator: AnOperator, delivery_id: DeliveryIdPath, body: Reason, state: OrdersState
) -> WebhookDelivery:
    due = await endpoints.resend(state.db, delivery_id, actor=operator.name, reason=body.reason)
    state.webhook_dispatcher.queue.wake()
    return due
