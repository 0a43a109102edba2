"""Webhook endpoints: create, delete, enable and list them, list their deliveries, and send one again.

Every change is written to the audit log in its own transaction. A signing secret is answered once, when it is created.
"""

import secrets
from typing import Any

from sqlalchemy import Executable, RowMapping, delete, func, insert, select, update

from services.orders.problems import TooManyWebhooks, UnknownDelivery, UnknownWebhook, WebhookUrlRefused
from services.orders.tables import audit_log, webhook_delivery, webhook_endpoint
from services.orders.webhooks.dispatcher import Sender, new_secret
from shared.audit_log import Actor
from shared.contracts.admin.orders import (
    CreatedWebhookEndpoint,
    NewWebhookEndpoint,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookEndpoint,
    WebhookEndpoints,
)
from shared.errors.problems import Problem
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.postgres.pages import PageRequest

ENDPOINTS_MAX = 100
ENDPOINT_COLUMNS = [column for column in webhook_endpoint.c if column.name != "secret"]
DELIVERY_COLUMNS = [column for column in webhook_delivery.c if column.name not in ("body", "lease", "lease_until")]


async def create(
    db: AsyncEngine, new: NewWebhookEndpoint, *, sender: Sender, https_only: bool, actor: str
) -> CreatedWebhookEndpoint:
    """A new endpoint with its secret. Raises `WebhookUrlRefused` for an address that webhooks are not sent to, and
    `TooManyWebhooks`.
    """
    if https_only and not new.url.startswith("https://"):
        raise WebhookUrlRefused("Webhooks are sent by https only. Send a URL that begins with https://.")
    await sender.check(new.url)
    values = {
        "endpoint_id": f"ep_{secrets.token_hex(8)}", "url": new.url, "secret": new_secret(),
        "kinds": sorted(set(new.kinds)), "event_id": new.event_id, "description": new.description,
    }  # fmt: skip
    async with db.begin() as connection:
        await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("webhooks", 0))))
        if (await connection.scalar(select(func.count()).select_from(webhook_endpoint)) or 0) >= ENDPOINTS_MAX:
            raise TooManyWebhooks(f"There are {ENDPOINTS_MAX} webhook endpoints. Delete one first.")
        inserted = insert(webhook_endpoint).values(values).returning(*webhook_endpoint.c)
        row = await _row(connection, inserted)
        await _audit(connection, "webhook-add", row["endpoint_id"], actor, new.reason, after=_audited(row))
    return CreatedWebhookEndpoint.model_validate(dict(row))


async def delete_endpoint(db: AsyncEngine, endpoint_id: str, *, actor: str, reason: str) -> None:
    """Nothing more is sent to it; its deliveries are deleted within the hour. Raises `UnknownWebhook`."""
    mine = webhook_endpoint.c.endpoint_id == endpoint_id
    async with db.begin() as connection:
        row = await _row(connection, delete(webhook_endpoint).where(mine).returning(*webhook_endpoint.c))
        await _audit(connection, "webhook-remove", endpoint_id, actor, reason, before=_audited(row))


async def enable(db: AsyncEngine, endpoint_id: str, *, actor: str, reason: str) -> WebhookEndpoint:
    """Enables a disabled endpoint. Deliveries that were pending before it was disabled go on; for events since then
    there are none. Raises `UnknownWebhook`.
    """
    mine = webhook_endpoint.c.endpoint_id == endpoint_id
    async with db.begin() as connection:
        before = await _row(connection, select(webhook_endpoint).where(mine).with_for_update())
        values = {"disabled_at": None, "disabled_reason": None, "failing_since": None}
        changed = update(webhook_endpoint).where(mine).values(values).returning(*ENDPOINT_COLUMNS)
        row = await _row(connection, changed)
        if before["disabled_at"] is not None:
            await _audit(
                connection, "webhook-enable", endpoint_id, actor, reason, before=_audited(before), after=_audited(row)
            )
    return WebhookEndpoint.model_validate(dict(row))


async def list_endpoints(db: AsyncEngine) -> WebhookEndpoints:
    """Every endpoint, oldest first, without its secret."""
    query = select(*ENDPOINT_COLUMNS).order_by(webhook_endpoint.c.created_at, webhook_endpoint.c.endpoint_id)
    async with db.connect() as connection:
        rows = (await connection.execute(query)).mappings()
        return WebhookEndpoints(endpoints=[WebhookEndpoint.model_validate(dict(row)) for row in rows])


async def list_deliveries(
    db: AsyncEngine, endpoint_id: str, page: PageRequest[int], *, status: str | None
) -> WebhookDeliveryPage:
    """Deliveries of an endpoint, newest first. Raises `UnknownWebhook`."""
    exists = select(webhook_endpoint.c.endpoint_id).where(webhook_endpoint.c.endpoint_id == endpoint_id)
    query = select(*DELIVERY_COLUMNS).where(webhook_delivery.c.endpoint_id == endpoint_id)
    if status is not None:
        query = query.where(webhook_delivery.c.status == status)
    async with db.connect() as connection:
        await _row(connection, exists)
    rows, following = await page.read(db, query, webhook_delivery.c.id)
    return WebhookDeliveryPage(deliveries=[WebhookDelivery.model_validate(dict(row)) for row in rows], next=following)


async def resend(db: AsyncEngine, delivery_id: int, *, actor: str, reason: str) -> WebhookDelivery:
    """Makes a delivery due now under the id it had, with all its attempts before it. Raises `UnknownDelivery`."""
    again = update(webhook_delivery).where(
        webhook_delivery.c.id == delivery_id, webhook_delivery.c.endpoint_id.in_(select(webhook_endpoint.c.endpoint_id))
    )
    again = again.values(status="pending", attempts=0, due_at=func.now(), delivered_at=None, error=None)
    async with db.begin() as connection:
        row = await _row(connection, again.returning(*DELIVERY_COLUMNS), unknown=UnknownDelivery)
        after = {"delivery": delivery_id, "message_id": row["message_id"]}
        await _audit(connection, "webhook-resend", row["endpoint_id"], actor, reason, after=after)
    return WebhookDelivery.model_validate(dict(row))


async def _row(
    connection: AsyncConnection, statement: Executable, *, unknown: type[Problem] = UnknownWebhook
) -> RowMapping:
    """The only row of this statement. Raises `unknown` if there is none."""
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is None:
        raise unknown
    return row


async def _audit(
    connection: AsyncConnection, action: str, endpoint_id: str, actor: str, reason: str, **states: Any
) -> None:
    await audit_log.write(connection, action, Actor(actor, reason), subject=f"webhook:{endpoint_id}", **states)


def _audited(row: RowMapping) -> dict[str, Any]:
    fields = {name: row[name] for name in ("url", "kinds", "event_id", "description")}
    return fields | {"disabled": row["disabled_at"] is not None, "disabled_reason": row["disabled_reason"]}
