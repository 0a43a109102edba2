"""One fan of the night, as a generator: it yields what it does next and is sent what came of it.

A generator keeps half a million lives in memory where half a million tasks would not fit, and reads like one life. That
is why this crowd alone does not buy with the `Fan` of `onsale.client`, whose coroutines need a task each; what a status
means comes from there.
"""

import random
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import orjson

from bench.harness.load import Answer, request
from bench.night.suite import Record
from onsale.client.fan import CALLED, LOST, OVER

ATTEMPTS_MAX = 8
RETRY_STATUSES = frozenset({0, 408, 429, 503})  # 408: sent as the server ended an idle connection
ORDER_POLL_S = 2.5  # as the order page polls while it has no stream

Pool = Literal["join", "line", "pass", "stock", "orders"]
WaitEnd = Literal["called", "sold out", "lost"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the fan; it is sent the `Answer`, with status 0 if the connection broke."""

    name: str
    pool: Pool
    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds until the fan goes on; it is sent None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Listen:
    """A stream until the line reaches `join_seq` or is sold out; it is sent which, or that the stream was lost."""

    join_seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadLine:
    """Reads of the public line, which a cache answers, until the fan has to ask: the place comes near the line's
    head, or `seconds` are over. It is sent None then, or "sold out" once the line says so.
    """

    join_seq: int
    seconds: float


Step = Call | Pause | Listen | ReadLine
Life = Generator[Step, Any, Any]


@dataclass(frozen=True, slots=True)
class Sale:
    """What every fan knows of the event."""

    event_id: str
    section_id: str

    @property
    def path(self) -> str:
        return f"/events/{self.event_id}"


class WentHome(Exception):
    """The fan ends without a ticket; the message says why."""


class Fan:
    """Joins, waits on a stream or by polling as the server says, buys one ticket, and stays until it is confirmed."""

    __slots__ = ("_join_seq", "_joined_s", "_record", "_sale", "_token", "_watches")

    def __init__(self, sale: Sale, record: Record, *, watches: bool) -> None:
        self._sale, self._record, self._watches = sale, record, watches
        self._token, self._join_seq, self._joined_s = "", 0, 0.0

    def life(self) -> Life:
        try:
            yield from self._join()
            yield from self._wait()
            yield from self._buy(*(yield from self._claim()))
        except WentHome as why:
            self._record.went_home[str(why)] += 1

    def _call(
        self, name: str, pool: Pool, method: str, path: str, *, token: str = "", key: str = "", body: Any = None
    ) -> Generator[Step, Any, tuple[int, Any]]:
        """Status and document. After a passing refusal or a broken connection it asks again, as the answer says."""
        headers = {"authorization": f"Bearer {token}"} if token else {"origin": "http://bench"}
        if key:
            headers["idempotency_key"] = key
        data = request(method, path, b"" if body is None else orjson.dumps(body), **headers)
        answer = Answer(0)
        for attempt in range(ATTEMPTS_MAX):
            answer = yield Call(name, pool, data)
            if answer.status not in RETRY_STATUSES:
                return answer.status, orjson.loads(answer.body)
            yield Pause((answer.retry_after_s or 0.3) * random.uniform(1.0, 2.0) * 1.5**attempt)
        self._record.failed[f"{name} {answer.status}"] += 1
        raise WentHome(f"{name} failed")

    def _join(self) -> Generator[Step, Any, None]:
        key = uuid.uuid4().hex
        status, place = yield from self._call("join", "join", "POST", f"{self._sale.path}/queue", key=key)
        if status == 410:
            self._record.informed()
            raise WentHome("came when it was sold out")
        if status not in (200, 201):
            raise WentHome(f"not let in ({status})")
        self._token, self._join_seq, self._joined_s = place["queue_token"], place["join_seq"], time.monotonic()
        self._record.joined(self._join_seq)
        if not self._watches:
            yield from self._rest(place)

    def _wait(self) -> Generator[Step, Any, None]:
        path, watches = f"{self._sale.path}/queue/status", self._watches
        while True:
            if watches:
                data = request(
                    "GET", f"{self._sale.path}/sections/updates", accept="text/event-stream",
                    authorization=f"Bearer {self._token}",
                )  # fmt: skip
                wait_end = yield Listen(self._join_seq, data)
                if wait_end == "sold out":
                    self._go_home_informed()
                watches = wait_end != "lost"
            requested_s = time.monotonic()
            status, place = yield from self._call("status", "line", "GET", path, token=self._token)
            if status != 200 or place["status"] in LOST:
                raise WentHome(f"lost the place ({status})" if status != 200 else place["status"])
            if place["status"] in CALLED:
                self._record.called(self._join_seq)
                return
            self._record.check_not_overtaken(self._join_seq, requested_s)
            if place["state"] in OVER:
                self._go_home_informed()
            yield from self._rest(place)

    def _rest(self, place: dict[str, Any]) -> Generator[Step, Any, None]:
        """Until it is time to ask for the status, as the server says."""
        heartbeat_ms = place.get("heartbeat_after_ms")
        if not heartbeat_ms:
            yield Pause(place["poll_after_ms"] / 1000)
        elif (yield ReadLine(self._join_seq, heartbeat_ms / 1000 * random.uniform(0.8, 1.0))) == "sold out":
            self._go_home_informed()

    def _go_home_informed(self) -> NoReturn:
        self._record.informed()
        raise WentHome("heard that it is sold out")

    def _claim(self) -> Generator[Step, Any, tuple[str, str]]:
        path = f"{self._sale.path}/queue/pass"
        status, answer = yield from self._call("pass", "pass", "POST", path, token=self._token)
        if status != 200:
            raise WentHome(f"no pass ({status})")
        self._record.admitted(time.monotonic() - self._joined_s)
        return answer["pass"], answer["checkout_key"]

    def _buy(self, admission: str, checkout_key: str) -> Generator[Step, Any, None]:
        body: dict[str, Any] = {"ga": [{"section_id": self._sale.section_id, "quantity": 1}]}
        status, held = yield from self._call(
            "hold", "stock", "POST", f"{self._sale.path}/reservations", token=admission, key=uuid.uuid4().hex, body=body
        )
        if status not in (200, 201):
            self._record.informed()
            raise WentHome("came too late for a ticket" if status in (409, 410) else f"hold refused ({status})")
        self._record.held()
        named = {"reservation_id": held["reservation_id"]}
        status, quote = yield from self._call("quote", "orders", "POST", "/orders/quote", token=admission, body=named)
        if status != 200:
            raise WentHome(f"quote refused ({status})")
        body = {
            **named, "expected_total_minor": quote["total_minor"], "currency": held["currency"],
            "customer": {"name": f"Fan {self._join_seq}", "email": f"fan-{self._join_seq}@example.org"},
            "payment": {"provider": "sandbox", "method": "ok"},
        }  # fmt: skip
        key = f"{checkout_key}.{held['reservation_id']}"
        status, order = yield from self._call("order", "orders", "POST", "/orders", token=admission, key=key, body=body)
        if status not in (200, 202):
            raise WentHome(f"order refused ({status})")
        yield from self._follow(order)

    def _follow(self, order: dict[str, Any]) -> Generator[Step, Any, None]:
        path, status = f"/orders/{order['reference']}", "pending"
        ordered_s = time.monotonic()
        while status == "pending":
            yield Pause(ORDER_POLL_S * random.uniform(0.8, 1.2))
            code, now = yield from self._call("order status", "orders", "GET", path, token=order["order_token"])
            status = now["status"] if code == 200 else f"unreadable ({code})"
        if status != "confirmed":
            raise WentHome(f"order {status}")
        self._record.confirmed(time.monotonic() - ordered_s)
