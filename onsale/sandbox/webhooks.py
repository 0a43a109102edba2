"""Sends webhooks to the suite: signed, a bounded number at once, with retries, sometimes late or more than once.

The number of waiting webhooks is bounded; those that find no room or were tried too often are lost and counted.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Literal

from onsale.sandbox.charge import new_id
from onsale.sandbox.settings import DEFAULTS, SandboxSettings, Tuning
from shared.http.outgoing import ExternalClient, NotReached, ResponseLost, external_http_client

EventKind = Literal["processing", "succeeded", "failed", "cancelled", "refunded", "disputed", "dispute_closed"]
SIGNATURE_HEADER = "Sandbox-Signature"


class WebhookSender:
    """`send` never waits: each webhook is a task until it is delivered or lost. A `client` that is given is used as it
    is; otherwise all webhooks go over the kept connections of one.
    """

    def __init__(
        self, settings: SandboxSettings, tuning: Tuning = DEFAULTS, *, client: ExternalClient | None = None
    ) -> None:
        self._settings, self._tuning, self._given = settings, tuning, client
        self._client = client
        self._senders = asyncio.Semaphore(tuning.webhook_senders)
        self._waiting: set[asyncio.Task[None]] = set()
        self.deliver_late_s = 0.0
        self.lost = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Webhooks are sent inside this context; those that still wait at its end are dropped."""
        own = external_http_client(connections_max=self._tuning.webhook_senders)
        async with nullcontext(self._given) if self._given else own as self._client:
            try:
                yield
            finally:
                self.discard_waiting()
                await asyncio.gather(*self._waiting, return_exceptions=True)

    def discard_waiting(self) -> None:
        """Drops all webhooks that wait."""
        for task in self._waiting:
            task.cancel()

    def send(self, body: bytes, *, after_s: float = 0.0, copies: int = 1, forged: bool = False) -> None:
        if (url := self._settings.webhook_url) is None:
            return
        for _ in range(copies):
            if self.waiting >= self._tuning.webhooks_waiting_max:
                self.lost += 1
                continue
            task = asyncio.create_task(self._deliver(url, body, after_s + self.deliver_late_s, forged=forged))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _deliver(self, url: str, body: bytes, after_s: float, *, forged: bool) -> None:
        for pause_s in (after_s, *self._tuning.webhook_retry_delays_s):
            if pause_s:
                await asyncio.sleep(pause_s)
            async with self._senders:
                if await self._post(url, body, forged=forged):
                    return
        self.lost += 1

    async def _post(self, url: str, body: bytes, *, forged: bool) -> bool:
        assert self._client is not None, "webhooks are sent while the sender runs"
        secret = ("not " if forged else "") + self._settings.webhook_secret
        signature = sign(body, secret=secret, at_s=int(time.time()))
        headers = {SIGNATURE_HEADER: signature, "Content-Type": "application/json"}
        try:
            answer = await self._client.request(
                "POST", url, headers=headers, content=body, timeout_s=self._tuning.webhook_timeout_s
            )
        except (NotReached, ResponseLost):
            return False
        return 200 <= answer.status_code < 300


def event(kind: EventKind, charge: dict[str, Any], *, at: str) -> dict[str, Any]:
    return {"id": new_id("evt"), "type": f"charge.{kind}", "created_at": at, "data": {"charge": charge}}


def sign(body: bytes, *, secret: str, at_s: int) -> str:
    """The value of `Sandbox-Signature`: the time, and HMAC-SHA256 of time, dot and body."""
    mac = hmac.digest(secret.encode(), f"{at_s}.".encode() + body, "sha256")
    return f"t={at_s},v1={mac.hex()}"
