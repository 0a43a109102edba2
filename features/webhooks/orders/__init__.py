"""The part of orders: webhooks in Standard Webhooks form, the loops that queue and send them, the operators' API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode

from features.webhooks.orders import dispatcher, endpoints
from features.webhooks.orders.dispatcher import Sender, WebhookDispatcher
from services.orders.state import State
from shared.concurrency.background import Loops
from shared.http.outgoing import NoDnsResolver, external_http_client
from shared.messaging.relay import EventReader
from shared.process.settings import listed
from shared.web.parts import Part

POLL_S = 1.0  # between two looks for deliveries that are due


class WebhookSettings(BaseSettings):
    """Settings of orders."""

    webhook_workers: int = Field(32, ge=1, le=256, description="Webhook deliveries of one process at once.")
    webhook_backoff_s: Annotated[tuple[float, ...], NoDecode, BeforeValidator(listed)] = Field(
        (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
        max_length=30,
        description="Pauses before the retries of a delivery; after the last it has failed.",
    )


@asynccontextmanager
async def open_webhooks(state: State, loops: Loops) -> AsyncIterator[WebhookDispatcher]:
    """Webhooks keep no connection open, and only their sender resolves host names. This machine may be a receiver, also
    by http, for whoever writes one.
    """
    settings = state.settings
    assert isinstance(settings, WebhookSettings)
    most, loopback = settings.webhook_workers, settings.environment == "development"
    async with external_http_client(connections_max=most, keep_open=False, resolver=NoDnsResolver()) as client:
        sender = Sender(client, threads_max=most, deadline_s=dispatcher.TIMEOUT_S, loopback=loopback)
        webhooks = WebhookDispatcher(state.db, sender, workers_max=most, pauses_s=settings.webhook_backoff_s)
        database, then = settings.postgres_url, webhooks.wake_if_queued
        reader = EventReader(state.db, "orders", "webhooks", webhooks.queue, database=database, then=then)
        loops.keep(reader.run, name="orders.webhook_events")
        loops.keep(webhooks.run, name="orders.webhooks")
        loops.every(POLL_S, webhooks.poll, name="orders.webhook_polls")
        loops.every(3600, webhooks.forget, name="orders.webhooks_forget")
        try:
            yield webhooks
        finally:
            sender.close()


PART = Part(routers=[endpoints.router], settings=WebhookSettings, open=open_webhooks)
