"""What providers tell us unasked: verified on the raw bytes, stored, then answered; applied later, as a hint only.

A webhook never says what happened. It says whom to ask: its order is looked up at the provider.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.orders.metrics import WEBHOOKS
from services.orders.payments.provider import Provider, SignatureInvalid, WebhookEvent
from services.orders.problems import BadSignature, UnknownProvider
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import now_s
from shared.runtime.group_commit import GroupCommit
from shared.web.fast_routes import JSON, answer

_APPLY = statement(__package__, "apply_hints")
_STORE = statement(__package__, "store_webhooks")
_NAME = re.compile(r"[a-z]{1,32}")
TEXT_MAX_CHARS = 200
BATCH_MAX = 200
WAITING_MAX = 2000
STORED = b'{"stored":true}'


class Webhook(NamedTuple):
    """One webhook of this provider, verified."""

    provider: str
    note: WebhookEvent
    raw: bytes


class WebhookInbox:
    """Keeps webhooks; those that come together share a statement. `wake` is called for each batch with something new:
    the workers of this process look at once, those of others within a sweep. `engine` commits each statement.
    """

    def __init__(self, db: AsyncEngine, wake: Callable[[], None]) -> None:
        self._db, self._wake = db, wake
        self._group: GroupCommit[Webhook, None] = GroupCommit(
            self._store, name="orders-webhooks", batch_max=BATCH_MAX, waiting_max=WAITING_MAX
        )
        self.close = self._group.close

    async def store(self, webhook: Webhook) -> None:
        await self._group.submit(webhook)
        WEBHOOKS.labels(webhook.provider, "stored").inc()

    async def _store(self, webhooks: list[Webhook]) -> Sequence[None]:
        notes = [webhook.note for webhook in webhooks]
        bound = {
            "providers": [webhook.provider for webhook in webhooks], "webhook_ids": [note.webhook_id for note in notes],
            "kinds": [note.kind for note in notes], "references": [note.reference for note in notes],
            "charge_refs": [note.succeeded for note in notes], "raws": [webhook.raw for webhook in webhooks],
        }  # fmt: skip
        async with self._db.connect() as connection:
            is_news = (await connection.execute(_STORE, bound)).first() is not None
        if is_news:
            self._wake()
        return [None] * len(webhooks)


class PaymentWebhookRoute:
    """`POST /webhooks/{provider}`: an ASGI class, as every purchase brings one or more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, name = scope["app"].state.deps, scope["path_params"]["provider"]
        provider: Provider | None = state.providers.get(name)
        if not _NAME.fullmatch(name) or provider is None:
            raise UnknownProvider
        request = Request(scope, receive)
        raw = await request.body()
        note = _verified(provider, request.headers, raw)
        if note is not None:
            await state.inbox.store(Webhook(name, note, raw))
        await answer(send, 200, STORED, JSON)


WEBHOOK = Route("/webhooks/{provider}", PaymentWebhookRoute(), methods=["POST"])


def _verified(provider: Provider, headers: Mapping[str, str], raw: bytes) -> WebhookEvent | None:
    try:
        note = provider.verify_webhook(headers, raw, now_s=now_s())
    except SignatureInvalid as forged:
        WEBHOOKS.labels(provider.name, "forged").inc()
        raise BadSignature from forged
    if note is None:
        WEBHOOKS.labels(provider.name, "foreign").inc()
        return None
    texts = note.webhook_id, note.kind, note.reference, note.succeeded or ""
    if max(map(len, texts)) > TEXT_MAX_CHARS or any("\x00" in text for text in texts):
        raise BadSignature("A name in this webhook is not one of ours.")
    return note


async def apply_webhooks(db: AsyncEngine) -> int:
    """Makes the orders due that webhooks are about; how many are done with. `engine` commits each statement."""
    async with db.connect() as connection:
        applied = [row.applied for row in await connection.execute(_APPLY)]
    return sum(applied)
