"""The operators' API of webhook endpoints: create, delete, enable and list them, list their deliveries, and send one
again.

Every change is written to the audit log in its own transaction. A signing secret is answered once, when it is created.
"""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response
from sqlalchemy import Executable, RowMapping, delete, func, insert, select, update

from features.webhooks.orders.dispatcher import WebhookDispatcher, WebhookUrlRefused, new_secret
from features.webhooks.orders.tables import webhook_delivery, webhook_endpoint
from features.webhooks.schemas import (
    CreatedWebhookEndpoint,
    DeliveryStatus,
    NewWebhookEndpoint,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookEndpoint,
    WebhookEndpoints,
)
from services.orders.state import OrdersState
from services.orders.tables import audit_log
from shared.audit_log import Actor
from shared.contracts.admin.orders import Reason
from shared.contracts.fields import PlainText
from shared.errors.problems import Problem
from shared.postgres.engine import AsyncConnection
from shared.postgres.pages import BeforeId
from shared.security.auth import AnAdmin, AnOperator, Viewer
from shared.web.parts import opened

ENDPOINTS_MAX = 100
ENDPOINT_COLUMNS = [column for column in webhook_endpoint.c if column.name != "secret"]
DELIVERY_COLUMNS = [column for column in webhook_delivery.c if column.name not in ("body", "lease", "lease_until")]
Dispatcher = Annotated[WebhookDispatcher, Depends(opened(WebhookDispatcher))]
EndpointIdPath = Annotated[str, Path(pattern="^ep_[0-9a-f]{16}$")]
DeliveryIdPath = Annotated[int, Path(ge=1, le=2**62)]
ReasonQuery = Annotated[PlainText, Query(alias="reason")]
router = APIRouter(prefix="/admin/orders/webhooks", tags=["webhook endpoints"])


class UnknownWebhook(Problem, status=404):
    """There is no webhook endpoint with this id."""


class UnknownDelivery(Problem, status=404):
    """There is no delivery with this id, or its endpoint was deleted."""


class TooManyWebhooks(Problem, status=409):
    """The maximum number of webhook endpoints is reached. Delete one first."""


@router.get("", operation_id="list_webhook_endpoints", summary="List webhook endpoints")
async def list_endpoints(state: OrdersState, operator: Viewer) -> WebhookEndpoints:
    query = select(*ENDPOINT_COLUMNS).order_by(webhook_endpoint.c.created_at, webhook_endpoint.c.endpoint_id)
    async with state.db.connect() as connection:
        rows = (await connection.execute(query)).mappings()
        return WebhookEndpoints(endpoints=[WebhookEndpoint.model_validate(dict(row)) for row in rows])


@router.post("", status_code=201, operation_id="create_webhook_endpoint", summary="Create a webhook endpoint")
async def create_endpoint(
    operator: AnAdmin, new: NewWebhookEndpoint, state: OrdersState, webhooks: Dispatcher, response: Response
) -> CreatedWebhookEndpoint:
    """The URL must be https and lead to a public address. The response has the signing secret, which is shown once."""
    response.headers["cache-control"] = "no-store"
    if not webhooks.sender.loopback and not new.url.startswith("https://"):
        raise WebhookUrlRefused("Webhooks are sent by https only. Send a URL that begins with https://.")
    await webhooks.sender.check(new.url)
    values = {
        "endpoint_id": f"ep_{secrets.token_hex(8)}", "url": new.url, "secret": new_secret(),
        "kinds": sorted(set(new.kinds)), "event_id": new.event_id, "description": new.description,
    }  # fmt: skip
    async with state.db.begin() as connection:
        await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("webhooks", 0))))
        if (await connection.scalar(select(func.count()).select_from(webhook_endpoint)) or 0) >= ENDPOINTS_MAX:
            raise TooManyWebhooks(f"There are {ENDPOINTS_MAX} webhook endpoints. Delete one first.")
        row = await _row(connection, insert(webhook_endpoint).values(values).returning(*webhook_endpoint.c))
        actor = Actor(operator.name, new.reason)
        await _audit(connection, "webhook-add", row["endpoint_id"], actor, after=_audited(row))
    return CreatedWebhookEndpoint.model_validate(dict(row))


@router.delete(
    "/{endpoint_id}", status_code=204, operation_id="delete_webhook_endpoint", summary="Delete a webhook endpoint"
)
async def delete_endpoint(
    operator: AnAdmin, endpoint_id: EndpointIdPath, reason: ReasonQuery, state: OrdersState
) -> None:
    mine = webhook_endpoint.c.endpoint_id == endpoint_id
    async with state.db.begin() as connection:  # its deliveries are deleted within the hour
        row = await _row(connection, delete(webhook_endpoint).where(mine).returning(*webhook_endpoint.c))
        await _audit(
            connection, "webhook-remove", endpoint_id, Actor(operator.name, reason), before=_audited(row)
        )  # fmt: skip


@router.post("/{endpoint_id}/enable", operation_id="enable_webhook_endpoint", summary="Enable a webhook endpoint")
async def enable_endpoint(
    operator: AnAdmin, endpoint_id: EndpointIdPath, body: Reason, state: OrdersState, webhooks: Dispatcher
) -> WebhookEndpoint:
    mine = webhook_endpoint.c.endpoint_id == endpoint_id
    values = {"disabled_at": None, "disabled_reason": None, "failing_since": None}
    async with state.db.begin() as connection:
        before = await _row(connection, select(webhook_endpoint).where(mine).with_for_update())
        changed = update(webhook_endpoint).where(mine).values(values).returning(*ENDPOINT_COLUMNS)
        row = await _row(connection, changed)
        if before["disabled_at"] is not None:
            states = {"before": _audited(before), "after": _audited(row)}
            await _audit(connection, "webhook-enable", endpoint_id, Actor(operator.name, body.reason), **states)
    webhooks.wake()  # what was pending goes on
    return WebhookEndpoint.model_validate(dict(row))


@router.get(
    "/{endpoint_id}/deliveries", operation_id="list_webhook_deliveries",
    summary="List webhook deliveries of an endpoint",
)  # fmt: skip
async def list_deliveries(
    state: OrdersState, operator: Viewer, endpoint_id: EndpointIdPath, page: BeforeId,
    status: DeliveryStatus | None = None,
) -> WebhookDeliveryPage:  # fmt: skip
    """Newest first."""
    exists = select(webhook_endpoint.c.endpoint_id).where(webhook_endpoint.c.endpoint_id == endpoint_id)
    query = select(*DELIVERY_COLUMNS).where(webhook_delivery.c.endpoint_id == endpoint_id)
    if status is not None:
        query = query.where(webhook_delivery.c.status == status)
    async with state.db.connect() as connection:
        await _row(connection, exists)
    rows, following = await page.read(state.db, query, webhook_delivery.c.id)
    return WebhookDeliveryPage(deliveries=[WebhookDelivery.model_validate(dict(row)) for row in rows], next=following)


@router.post(
    "/deliveries/{delivery_id}/resend", status_code=202, operation_id="resend_webhook", summary="Send a webhook again"
)
async def resend(
    operator: AnOperator, delivery_id: DeliveryIdPath, body: Reason, state: OrdersState, webhooks: Dispatcher
) -> WebhookDelivery:
    again = update(webhook_delivery).where(
        webhook_delivery.c.id == delivery_id, webhook_delivery.c.endpoint_id.in_(select(webhook_endpoint.c.endpoint_id))
    )
    again = again.values(status="pending", attempts=0, due_at=func.now(), delivered_at=None, error=None)
    async with state.db.begin() as connection:
        row = await _row(connection, again.returning(*DELIVERY_COLUMNS), unknown=UnknownDelivery)
        after = {"delivery": delivery_id, "message_id": row["message_id"]}
        await _audit(
            connection, "webhook-resend", row["endpoint_id"], Actor(operator.name, body.reason), after=after
        )  # fmt: skip
    webhooks.wake()
    return WebhookDelivery.model_validate(dict(row))


async def _row(
    connection: AsyncConnection, statement: Executable, *, unknown: type[Problem] = UnknownWebhook
) -> RowMapping:
    """The only row of this statement. Raises `unknown` if there is none."""
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is None:
        raise unknown
    return row


async def _audit(connection: AsyncConnection, action: str, endpoint_id: str, actor: Actor, **states: Any) -> None:
    await audit_log.write(connection, action, actor, subject=f"webhook:{endpoint_id}", **states)


def _audited(row: RowMapping) -> dict[str, Any]:
    fields = {name: row[name] for name in ("url", "kinds", "event_id", "description")}
    return fields | {"disabled": row["disabled_at"] is not None, "disabled_reason": row["disabled_reason"]}
