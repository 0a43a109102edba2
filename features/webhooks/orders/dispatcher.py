"""Webhook dispatcher: queues the deliveries of events, leases those that are due, sends them signed and within a
deadline, and schedules retries.

Delivery is at least once. Endpoints take turns, and one endpoint has a bounded number of deliveries in flight over all
processes. A process that dies leaves its deliveries to others when their leases end; one may then arrive twice, and the
receiver knows it by its `webhook-id`.

Redirects are not followed, connections are not reused and little of the response is read: a receiver cannot make this
server reach other hosts, and cannot slow other receivers down. Webhooks go to public addresses only: a name is resolved
here and the connection goes to the address that was checked, so a name that resolves differently a moment later (DNS
rebinding) leads nowhere else.
"""

import asyncio
import base64
import hashlib
import hmac
import random
import secrets
import socket
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpx
from prometheus_client import Counter
from sqlalchemy import text

from shared.concurrency.background import Quiet, stop
from shared.errors.problems import Problem
from shared.http.outgoing import ExternalHttpClient, NotReached, ResponseTooLarge
from shared.messaging.log import PendingEvent
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.runtime.clock import now_s
from shared.runtime.logging import get_logger
from shared.runtime.metrics import with_series

log = get_logger("onsale.orders")
DELIVERIES = with_series(
    Counter("orders_webhook_deliveries_total", "Webhook deliveries to organisers, by outcome.", ["outcome"]),
    outcome=("delivered", "failed"),
)
_ANY_ENDPOINT = text("SELECT EXISTS (SELECT FROM orders.webhook_endpoint WHERE disabled_at IS NULL)")
_QUEUE = statement(__package__, "queue_deliveries")
_LEASE = statement(__package__, "lease_deliveries")
_FINISH = statement(__package__, "finish_delivery")
_DELETE_OLD = statement(__package__, "delete_old_deliveries")
_ANY_SOON = text(
    "SELECT EXISTS (SELECT FROM orders.webhook_delivery d JOIN orders.webhook_endpoint h USING (endpoint_id) "
    "WHERE h.disabled_at IS NULL AND d.due_at <= now() + make_interval(secs => :soon_s))"
)
_EXCLUSIVE_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('orders webhooks', 0))")
TIMEOUT_S = 15.0  # of a delivery
ENDPOINT_CONCURRENCY = 4  # deliveries to one endpoint at once, by all processes
DISABLE_AFTER_S = 5 * 86_400.0  # an endpoint is disabled after failing for so long
FETCH_S = 0.05
QUIET_S, SOON_S = 5.0, 6.0  # the longest pause between two polls; each must see rows that become due before the next
KEPT_DAYS = 30
LEASE_SPARE_S = 30.0
ADDRESSES_MAX = 3
NAT64 = IPv6Network("64:ff9b::/96")
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of Standard Webhooks secrets
SECRET_BYTES = 32
RESPONSE_MAX_BYTES = 16 * 1024
GONE = 410  # the receiver wants no more webhooks: its endpoint is disabled
DEFAULT_PORTS = {"https": 443, "http": 80}


class WebhookUrlRefused(Problem, status=422):
    """Webhooks are not sent to this URL. Use https and a public address."""


async def queue_deliveries(connection: AsyncConnection, events: Sequence[PendingEvent]) -> bool:
    """Queues a delivery of each event to each endpoint that wants it, in the transaction that marks them as read;
    whether there are any. With no endpoint it reads no order.
    """
    if not await connection.scalar(_ANY_ENDPOINT):
        return False
    bound = {"events": f"[{','.join(event.body for event in events)}]"}
    return (await connection.execute(_QUEUE, bound)).rowcount > 0


def is_allowed(text: str, *, loopback: bool) -> bool:
    """Whether an address is public. An IPv4 address within an IPv6 one is checked as the IPv4 address."""
    if "%" in text:
        return False  # a scoped address is valid on one link only
    address = _unwrapped(ip_address(text))
    if address.is_loopback:
        return loopback
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)


def _unwrapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


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


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, at_s: int, body: str) -> str:
    """The `webhook-signature` header: HMAC-SHA256 over id, Unix time and body."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = hmac.new(key, f"{message_id}.{at_s}.{body}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


class Sender:
    """Posts over `client`, which must keep no connections and resolve no names: certificates are checked by name, a
    connection to one name must never serve another, and only a checked address may be connected to. With `loopback`
    this machine may be a receiver, too. Names are resolved on threads of its own: a name server that hangs delays
    webhooks and nothing else.
    """

    def __init__(self, client: ExternalHttpClient, *, threads_max: int, deadline_s: float, loopback: bool) -> None:
        self._client, self._deadline_s, self.loopback = client, deadline_s, loopback
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="webhook-dns")

    def close(self) -> None:
        """Pending lookups are abandoned."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def lookup(self, host: str, port: int) -> Sequence[str]:
        """Every address of this name, in the order this machine would try them. Raises `OSError`."""
        lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, lookup)
        return [str(sockaddr[0]) for *_, sockaddr in found]

    async def addresses(self, url: httpx.URL) -> list[str]:
        """The first addresses that may be connected to. Raises `WebhookUrlRefused`, `OSError`."""
        every = await self.lookup(url.raw_host.decode(), url.port or DEFAULT_PORTS[url.scheme])
        found = [text for text in dict.fromkeys(every) if is_allowed(text, loopback=self.loopback)]
        if not found:
            raise WebhookUrlRefused(
                "The address is private, of this machine, or reserved. Send a URL with a public address."
            )
        return found[:ADDRESSES_MAX]

    async def send(self, delivery: Delivery) -> DeliveryResult:
        """Raises nothing that a receiver can cause."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._send(delivery)
        except TimeoutError:
            return DeliveryResult(error="no answer in time")
        except WebhookUrlRefused as refused:
            return DeliveryResult(error=str(refused))
        except (httpx.InvalidURL, OSError, UnicodeError) as failed:
            return DeliveryResult(error=f"{type(failed).__name__}: {failed}"[:200])

    async def check(self, url: str) -> None:
        """Raises `WebhookUrlRefused` for a URL that leads to no address we would send to. A name that cannot be
        resolved now is checked again with every webhook.
        """
        with suppress(OSError, UnicodeError):
            async with asyncio.timeout(self._deadline_s):
                await self.addresses(httpx.URL(url))

    async def _send(self, delivery: Delivery) -> DeliveryResult:
        url = httpx.URL(delivery.url)
        if url.scheme != "https" and not self.loopback:
            raise WebhookUrlRefused("Webhooks are sent by https only.")
        *others, last = await self.addresses(url)
        for address in others:
            with suppress(NotReached):
                return await self._post(url, address, delivery)
        return await self._post(url, last, delivery)

    async def _post(self, url: httpx.URL, address: str, delivery: Delivery) -> DeliveryResult:
        at_s = int(now_s())
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
                timeout_s=self._deadline_s, server_name=url.raw_host.decode(), answer_max_bytes=RESPONSE_MAX_BYTES,
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


class WebhookDispatcher:
    """The deliveries of this process: at most `workers_max` on their way. `pauses_s` precede the retries of each.

    The table is a queue of work: due rows are leased, and the outcome is written under the lease. A process that dies
    leaves its rows to others when their leases end. `run` and `poll` are for two loops; polls are rare while `has_soon`
    says that nothing becomes due in `SOON_S`.
    """

    def __init__(self, db: AsyncEngine, sender: Sender, *, workers_max: int, pauses_s: tuple[float, ...]) -> None:
        self._db, self.sender, self._workers_max, self._pauses_s = db, sender, workers_max, pauses_s
        self._single_reads = db.execution_options(isolation_level="AUTOCOMMIT")  # the question of an idle dispatcher
        self._woken, self.has_soon, self._has_queued = asyncio.Event(), True, False
        self._running: dict[asyncio.Task[None], Delivery] = {}

    @property
    def rows(self) -> list[Delivery]:
        """The deliveries on their way."""
        return list(self._running.values())

    def wake(self) -> None:
        """Looks for due deliveries now instead of at the next poll."""
        self._woken.set()

    async def queue(self, connection: AsyncConnection, events: Sequence[PendingEvent]) -> None:
        """Queues the deliveries of these events, for an `EventReader`."""
        self._has_queued |= await queue_deliveries(connection, events)

    def wake_if_queued(self) -> None:
        """Wakes it if anything was queued since the last call: events that no endpoint wants cause no look."""
        if self._has_queued:
            self._has_queued = False
            self.wake()

    async def poll(self) -> Quiet | None:
        """Looks for due deliveries."""
        self.wake()
        return None if self.has_soon or self._running else Quiet(QUIET_S)

    async def run(self) -> None:
        """Runs until cancelled; deliveries on their way are then left to their leases. Wakes within `FETCH_S` are one
        look.
        """
        clock = asyncio.get_running_loop().time
        try:
            while True:
                self._woken.clear()
                next_s = clock() + FETCH_S
                self.has_soon = False
                await self._start_due()
                if len(self._running) < self._workers_max:
                    await asyncio.sleep(next_s - clock())
                await self._woken.wait()
        finally:
            await stop(self._running)

    async def _start_due(self) -> None:
        while (free := self._workers_max - len(self._running)) > 0:
            due = await self._fetch(free)
            for row in due:
                self.has_soon = True
                task = asyncio.create_task(self._deliver(row))
                self._running[task] = row
                task.add_done_callback(self._done)
            if len(due) < free:
                return

    def _done(self, task: "asyncio.Task[None]") -> None:
        if len(self._running) >= self._workers_max:
            self.wake()
        del self._running[task]

    async def _fetch(self, many: int) -> list[Delivery]:
        """Leases up to so many due deliveries; fewer mean that no more are due. Sets `has_soon`.

        One process leases at a time; two at once would both count the same free slots of an endpoint.
        """
        bound = {
            "many": many, "each_max": ENDPOINT_CONCURRENCY, "lease": uuid.uuid4().hex,
            "lease_s": TIMEOUT_S + LEASE_SPARE_S,
        }  # fmt: skip
        async with self._single_reads.connect() as connection:
            if not await connection.scalar(_ANY_SOON, {"soon_s": SOON_S}):
                return []
        self.has_soon = True
        async with self._db.begin() as connection:
            if not await connection.scalar(_EXCLUSIVE_LOCK):
                return []
            return [Delivery(**row) for row in (await connection.execute(_LEASE, bound)).mappings()]

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._finish(delivery, await self.sender.send(delivery))
        except Exception:
            log.exception("webhook.failed", endpoint=delivery.endpoint_id, delivery=delivery.id)
        finally:
            self.wake()  # its endpoint may be sent another one now

    async def _finish(self, delivery: Delivery, result: DeliveryResult) -> None:
        delay_s = retry_delay_s(self._pauses_s, delivery.attempts + 1, random.random())  # noqa: S311 - jitter
        gone = result.status == GONE
        outcome = {
            "id": delivery.id, "lease": delivery.lease, "delivered": result.delivered, "gone": gone,
            "pause_s": None if result.delivered or gone else delay_s, "answer_status": result.status,
            "error": result.error, "disable_after_s": DISABLE_AFTER_S,
        }  # fmt: skip
        async with self._db.begin() as connection:
            disabled = await connection.scalar(_FINISH, outcome)
        DELIVERIES.labels("delivered" if result.delivered else "failed").inc()
        if not result.delivered:
            log.warning(
                "webhook.delivery_failed",
                endpoint=delivery.endpoint_id,
                delivery=delivery.id,
                error=result.error,
                disabled=bool(disabled),
            )

    async def forget(self) -> int:
        """Deletes a batch of the oldest deliveries past `KEPT_DAYS` or of deleted endpoints; how many."""
        async with self._db.begin() as connection:
            return (await connection.execute(_DELETE_OLD, {"keep_days": KEPT_DAYS})).rowcount
