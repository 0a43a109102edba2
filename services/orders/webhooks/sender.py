"""Sends one webhook: signed as Standard Webhooks has it, to a checked address, within a deadline, reading little back.

Redirects are not followed, no connection is kept: a receiver gets what is owed to it and nothing else of us.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

import httpx

from services.orders.webhooks.address_guard import AddressRefused, Resolve, public_only
from shared.rpc.outgoing import AnswerTooLarge, NotReached, Outgoing
from shared.runtime.clock import now_s

SECRET_PREFIX = "whsec_"  # noqa: S105 - what Standard Webhooks secrets begin with
SECRET_BYTES = 32
ANSWER_MAX_BYTES = 16 * 1024
GONE = 410
DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What is to be sent where; `lease` is our right to do so for a while."""

    id: int
    hook_id: str
    lease: str
    url: str
    secret: str
    message_id: str
    body: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """What came of it: the receiver's status, or why there is none."""

    status: int | None = None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """The receiver wants no more, ever."""
        return self.status == GONE


def new_secret() -> str:
    """A fresh signing secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, at_s: int, body: str) -> str:
    """The `webhook-signature`: HMAC-SHA256 over id, time and body."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = hmac.new(key, f"{message_id}.{at_s}.{body}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


class Sender:
    """Asks receivers over `client`, which must keep no connections and resolve no names: their certificates are checked
    by name, a connection to one name must never serve another, and only a checked address is connected to.
    """

    def __init__(self, client: Outgoing, *, deadline_s: float, loopback: bool, resolve: Resolve) -> None:
        self._client, self._deadline_s, self._loopback, self._resolve = client, deadline_s, loopback, resolve

    async def send(self, delivery: Delivery) -> DeliveryResult:
        """Never raises for what a receiver does."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._send(delivery)
        except TimeoutError:
            return DeliveryResult(error="no answer in time")
        except AddressRefused as refused:
            return DeliveryResult(error=str(refused))
        except (httpx.InvalidURL, OSError, UnicodeError) as failed:
            return DeliveryResult(error=f"{type(failed).__name__}: {failed}"[:200])

    async def check(self, url: str) -> None:
        """Raises `AddressRefused` for a URL that leads to no address we would send to."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._addresses(httpx.URL(url))
        except (OSError, UnicodeError):
            return  # nobody can tell now; it is checked again with every webhook

    async def _addresses(self, url: httpx.URL) -> list[str]:
        port = url.port or DEFAULT_PORTS[url.scheme]
        return await public_only(url.raw_host.decode(), port, loopback=self._loopback, resolve=self._resolve)

    async def _send(self, delivery: Delivery) -> DeliveryResult:
        url = httpx.URL(delivery.url)
        if url.scheme != "https" and not self._loopback:
            raise AddressRefused("Webhooks are sent by https only.")
        addresses = await self._addresses(url)
        for address in addresses[:-1]:
            try:
                return await self._post(url, address, delivery)
            except NotReached:
                continue
        return await self._post(url, addresses[-1], delivery)

    async def _post(self, url: httpx.URL, address: str, delivery: Delivery) -> DeliveryResult:
        at_s, name = int(now_s()), url.raw_host.decode()
        headers = {
            "host": url.netloc.decode(),
            "content-type": "application/json",
            "user-agent": "onsale-hooks",
            "webhook-id": delivery.message_id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": sign(delivery.secret, delivery.message_id, at_s, delivery.body),
        }
        try:
            answer = await self._client.request(
                "POST", str(url.copy_with(host=address)), headers=headers, content=delivery.body.encode(),
                timeout_s=self._deadline_s, server_name=name, answer_max_bytes=ANSWER_MAX_BYTES,
            )  # fmt: skip
            status = answer.status_code
        except AnswerTooLarge as talkative:
            status = talkative.status_code
        return DeliveryResult(status=status, error=None if 200 <= status < 300 else f"answered {status}")


def pause_s(pauses_s: tuple[float, ...], attempts: int, drawn: float) -> float | None:
    """How long to wait after this many failed attempts, with up to a fifth more by lot; nothing after the last."""
    return pauses_s[attempts - 1] * (1 + drawn / 5) if attempts <= len(pauses_s) else None
