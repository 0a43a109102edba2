"""Sends one webhook: signed after Standard Webhooks, to a checked address, within a deadline.

Redirects are not followed, connections are not reused and little of the response is read: a receiver cannot make this
server reach other hosts, and cannot slow other receivers down.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

import httpx

from services.orders.webhooks.address_guard import AddressRefused, Resolve, resolve_allowed
from shared.http.outgoing import ExternalHttpClient, NotReached, ResponseTooLarge
from shared.runtime.clock import now_s

SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of Standard Webhooks secrets
SECRET_BYTES = 32
RESPONSE_MAX_BYTES = 16 * 1024
GONE = 410
DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message to one endpoint; the result is stored only while `lease` is still ours."""

    id: int
    endpoint_id: str
    lease: str
    url: str
    secret: str
    message_id: str
    body: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The receiver's HTTP status, or the error if there was no response."""

    status: int | None = None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """410: the receiver wants no more webhooks; the endpoint is disabled."""
        return self.status == GONE


def new_secret() -> str:
    """A new random signing secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, at_s: int, body: str) -> str:
    """The `webhook-signature` header: HMAC-SHA256 over id, Unix time and body."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = hmac.new(key, f"{message_id}.{at_s}.{body}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


class Sender:
    """Posts over `client`, which must keep no connections and resolve no names: certificates are checked by name, a
    connection to one name must never serve another, and only a checked address may be connected to.
    """

    def __init__(self, client: ExternalHttpClient, *, deadline_s: float, loopback: bool, resolve: Resolve) -> None:
        self._client, self._deadline_s, self._loopback, self._resolve = client, deadline_s, loopback, resolve

    async def send(self, delivery: Delivery) -> DeliveryResult:
        """Raises nothing that a receiver can cause."""
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
            return  # the name cannot be resolved now; the address is checked again with every webhook

    async def _addresses(self, url: httpx.URL) -> list[str]:
        port = url.port or DEFAULT_PORTS[url.scheme]
        return await resolve_allowed(url.raw_host.decode(), port, loopback=self._loopback, resolve=self._resolve)

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
            "user-agent": "onsale-webhooks",
            "webhook-id": delivery.message_id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": sign(delivery.secret, delivery.message_id, at_s, delivery.body),
        }
        try:
            answer = await self._client.request(
                "POST", str(url.copy_with(host=address)), headers=headers, content=delivery.body.encode(),
                timeout_s=self._deadline_s, server_name=name, answer_max_bytes=RESPONSE_MAX_BYTES,
            )  # fmt: skip
            status = answer.status_code
        except ResponseTooLarge as too_large:
            status = too_large.status_code
        return DeliveryResult(status=status, error=None if 200 <= status < 300 else f"answered {status}")


def retry_delay_s(pauses_s: tuple[float, ...], attempts: int, drawn: float) -> float | None:
    """The pause after this many failed attempts plus up to a fifth of it as jitter (`drawn`: 0 to 1); None after the
    last attempt.
    """
    return pauses_s[attempts - 1] * (1 + drawn / 5) if attempts <= len(pauses_s) else None
