"""The inbox of payment webhooks: verified on their raw bytes, stored together, then answered.

A webhook never says what happened, it says which order to sync: the charge itself is read from the provider.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from services.orders.metrics import WEBHOOKS
from services.orders.problems import BadSignature
from services.orders.providers.provider import Provider, SignatureInvalid, WebhookEvent
from services.orders.store.store import OrderStore, wake_in
from shared.concurrency.coalescing import GroupCommit
from shared.postgres.engine import statement
from shared.runtime.clock import now_s

_APPLY_WEBHOOKS = statement(__package__, "apply_webhooks")
_STORE_WEBHOOKS = statement(__package__, "store_webhooks")
TEXT_MAX_CHARS = 200
BATCH_MAX = 200
WAITING_MAX = 2000


class Webhook(NamedTuple):
    """One verified webhook of this provider."""

    provider: str
    event: WebhookEvent
    raw: bytes


class WebhookInbox:
    """Stores webhooks, those of `linger_s` by one statement: by then most are about money that is entered, and are
    stored as applied. `busy` are the orders that this process has in work.
    """

    def __init__(self, store: OrderStore, busy: Callable[[], Collection[str]], *, linger_s: float) -> None:
        self._orders, self._busy = store, busy
        self._group: GroupCommit[Webhook, None] = GroupCommit(
            self._store, name="orders-webhooks", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, linger_s=linger_s
        )
        self.close = self._group.close

    async def receive(self, provider: Provider, headers: Mapping[str, str], body: bytes) -> None:
        """Verifies a webhook and stores it, unless it is about no order of ours. Raises `BadSignature`."""
        event = _verify(provider, headers, body)
        outcome = "not_ours"
        if event is not None:
            await self._group.submit(Webhook(provider.name, event, body))
            outcome = "stored"
        WEBHOOKS.labels(provider.name, outcome).inc()

    async def _store(self, webhooks: list[Webhook]) -> Sequence[None]:
        events = [webhook.event for webhook in webhooks]
        bound = {
            "providers": [webhook.provider for webhook in webhooks],
            "webhook_ids": [event.webhook_id for event in events],
            "kinds": [event.kind for event in events], "references": [event.reference for event in events],
            "abouts": [event.charge_ref for event in events],
            "charge_refs": [event.succeeded for event in events], "raws": [webhook.raw for webhook in webhooks],
        }  # fmt: skip
        async with self._orders.db.connect() as connection:
            new = (await connection.execute(_STORE_WEBHOOKS, bound)).scalars().all()
        if any(new):
            await apply_webhooks(self._orders, self._busy())
        return [None] * len(webhooks)


def _verify(provider: Provider, headers: Mapping[str, str], raw: bytes) -> WebhookEvent | None:
    try:
        event = provider.verify_webhook(headers, raw, now_s=now_s())
    except SignatureInvalid as failed:
        WEBHOOKS.labels(provider.name, "invalid_signature").inc()
        raise BadSignature from failed
    texts = (event.webhook_id, event.kind, event.reference, event.charge_ref, event.succeeded) if event else ()
    if any(len(text) > TEXT_MAX_CHARS or "\x00" in text for text in texts if text):
        raise BadSignature("An id in this webhook is too long or contains a null character.")
    return event


async def apply_webhooks(store: OrderStore, busy: Collection[str]) -> None:
    """Lets the orders read their charges that stored webhooks are about, except those in work here (`busy`)."""
    async with store.begin() as connection:
        references = (await connection.execute(_APPLY_WEBHOOKS, {"busy": list(busy)})).scalars().all()
        woken = await wake_in(connection, references, owner=store.owner, sync=True) if references else []
    await store.tell(woken)
