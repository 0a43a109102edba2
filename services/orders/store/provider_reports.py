"""What payment providers report: an inbox of their webhooks, and a comparison of their charges with our money ledger.

A webhook is verified on its raw bytes, stored together with others, then answered. It never says what happened, it says
which order to sync: the charge itself is read from the provider.

What webhooks told nobody is found by comparison. A minute and an hour after a charge was made it is read again, a page
of a thousand at a time, by one process. An order whose money, refunds or dispute differ is woken, and reads its charges
by itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import orjson

from services.orders.metrics import WEBHOOKS
from services.orders.problems import BadSignature
from services.orders.store.store import OrderStore, wake_in
from shared.concurrency.background import Quiet
from shared.concurrency.coalescing import GroupCommit, chunks
from shared.payment_provider import (
    NotSent,
    OutcomeUnknown,
    Provider,
    ProviderCharge,
    ProviderRejected,
    SignatureInvalid,
    WebhookEvent,
)
from shared.postgres.engine import statement
from shared.runtime.clock import now_s
from shared.runtime.logging import get_logger

_APPLY_WEBHOOKS = statement(__package__, "apply_webhooks")
_STORE_WEBHOOKS = statement(__package__, "store_webhooks")
log = get_logger("onsale.orders")
_BEGIN = statement(__package__, "begin_comparison")
_END = statement(__package__, "end_comparison")
_DIFFERING = statement(__package__, "differing_charges")
AFTER_S = (60, 3600)  # so long after a charge was made
COMPARISON_S, QUIET_S = 20.0, 60.0
FIRST_S = 3600  # the first comparison looks back so much further
PAGE = 1000
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


async def compare_or_rest(store: OrderStore, providers: Mapping[str, Provider]) -> Quiet | None:
    """`compare` as a loop calls it."""
    return None if await compare(store, providers) else Quiet(QUIET_S)


async def compare(store: OrderStore, providers: Mapping[str, Provider]) -> list[str]:
    """Compares what is to be compared now, and returns the orders that were woken."""
    woken: list[str] = []
    for name, provider in providers.items():
        for after_s in AFTER_S:
            woken += await _compare(store, name, provider, after_s)
    return woken


async def _compare(store: OrderStore, name: str, provider: Provider, after_s: int) -> list[str]:
    bound = {"provider": name, "after_s": after_s}
    async with store.db.connect() as connection:
        begun = (await connection.execute(_BEGIN, {**bound, "first_s": FIRST_S})).first()
    if begun is None or begun.until_ms <= begun.since_ms:
        return []
    differing: list[str] = []
    if begun.is_busy:
        try:
            charges = await provider.list_since(begun.since_ms, begun.until_ms)
        except (NotSent, OutcomeUnknown, ProviderRejected) as failed:
            log.info("provider.not_compared", provider=name, error=repr(failed))
            return []  # in a minute
        for page in chunks(charges, PAGE):
            differing += await _differing(store, name, page)
    async with store.db.connect() as connection:
        await connection.execute(_END, {**bound, "until_ms": begun.until_ms})
    return differing


async def _differing(store: OrderStore, name: str, charges: Sequence[ProviderCharge]) -> list[str]:
    """Wakes the orders of these charges that differ from our ledger."""
    bound = {"provider": name, "charges": orjson.dumps(charges).decode()}
    async with store.db.connect() as connection:
        differing = list((await connection.execute(_DIFFERING, bound)).scalars())
    woken = await store.wake(differing, sync=True) if differing else []  # another shop may use the account
    if woken:
        log.warning("provider.differs", provider=name, orders=len(woken), first=woken[0])
    return woken
