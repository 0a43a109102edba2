"""Sends webhooks to the suite: signed, by a bounded pool, with retries, sometimes late or more than once.

The number of waiting webhooks is bounded; those that find no room or were tried too often are lost and counted.
"""

import asyncio
import hashlib
import hmac
import itertools
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx

from onsale.sandbox.charge import new_id
from onsale.sandbox.settings import SandboxSettings

EventKind = Literal["processing", "succeeded", "failed", "cancelled", "refunded"]
SIGNATURE_HEADER = "Sandbox-Signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    body: bytes
    tries: int = 0
    forged: bool = False


class WebhookSender:
    """`send` never waits; the pool runs between `start` and `close`."""

    def __init__(self, settings: SandboxSettings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._transport = transport
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._timer_ids = itertools.count()
        self._sending = 0
        self._pool: list[asyncio.Task[None]] = []
        self.deliver_late_s = 0.0
        self.lost = 0

    @property
    def waiting(self) -> int:
        return self._queue.qsize() + len(self._timers) + self._sending

    def start(self) -> None:
        if self._settings.webhook_url is not None:
            self._pool = [asyncio.create_task(self._send_for_ever()) for _ in range(self._settings.webhook_senders)]

    async def close(self) -> None:
        self.discard_waiting()
        for task in self._pool:
            task.cancel()
        await asyncio.gather(*self._pool, return_exceptions=True)

    def discard_waiting(self) -> None:
        """Drops all webhooks that wait."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while not self._queue.empty():
            self._queue.get_nowait()

    def send(self, body: bytes, *, after_s: float = 0.0, copies: int = 1, forged: bool = False) -> None:
        if self._settings.webhook_url is None:
            return
        for _ in range(copies):
            self._enqueue(Delivery(body=body, forged=forged), after_s=after_s + self.deliver_late_s)

    def _enqueue(self, delivery: Delivery, *, after_s: float) -> None:
        if self.waiting >= self._settings.webhooks_waiting_max:
            self.lost += 1
        elif after_s <= 0:
            self._queue.put_nowait(delivery)
        else:
            timer_id = next(self._timer_ids)
            self._timers[timer_id] = asyncio.get_running_loop().call_later(after_s, self._due, timer_id, delivery)

    def _due(self, timer_id: int, delivery: Delivery) -> None:
        del self._timers[timer_id]
        self._queue.put_nowait(delivery)

    async def _send_for_ever(self) -> None:
        """One worker of the pool, with a connection of its own that stays open."""
        settings = self._settings
        async with httpx.AsyncClient(
            transport=self._transport, timeout=settings.webhook_timeout_s, trust_env=False
        ) as client:
            while True:
                delivery = await self._queue.get()
                self._sending += 1
                delivered = await self._deliver(client, delivery)
                self._sending -= 1
                if not delivered:
                    self._retry(delivery)

    def _retry(self, delivery: Delivery) -> None:
        delays_s = self._settings.webhook_retry_delays_s
        if delivery.tries < len(delays_s):
            self._enqueue(replace(delivery, tries=delivery.tries + 1), after_s=delays_s[delivery.tries])
        else:
            self.lost += 1

    async def _deliver(self, client: httpx.AsyncClient, delivery: Delivery) -> bool:
        secret = self._settings.webhook_secret
        signature = sign(delivery.body, secret="not " + secret if delivery.forged else secret, at_s=int(time.time()))
        headers = {SIGNATURE_HEADER: signature, "Content-Type": "application/json"}
        try:
            answer = await client.post(self._settings.webhook_url or "", content=delivery.body, headers=headers)
        except httpx.HTTPError:
            return False
        return answer.is_success


def event(kind: EventKind, charge: dict[str, Any], *, at: str) -> dict[str, Any]:
    return {"id": new_id("evt"), "type": f"charge.{kind}", "created_at": at, "data": {"charge": charge}}


def sign(body: bytes, *, secret: str, at_s: int) -> str:
    """The value of `Sandbox-Signature`: the time, and HMAC-SHA256 of time, dot and body."""
    mac = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256)
    return f"t={at_s},v1={mac.hexdigest()}"
