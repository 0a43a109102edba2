"""The suite of the night: five services, one process each, the payment sandbox, the event, and the books afterwards.

What the fans of the night saw, second by second, and whether it keeps what the suite promises.
"""

import time
from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.harness import system
from bench.harness.measurement import Trial
from bench.orders.checkout import sandbox
from onsale.admin_client import AdminClient
from onsale.history.checker import check
from onsale.history.checks.check import Sources
from onsale.local.engines import with_driver
from onsale.local.ports import HOST, free_port
from onsale.simulate.observations import Observations, what_stays_wrong
from shared.contracts.event_file import EventFile
from shared.routes import SALE_SERVICES, Service, route

CHECKOUT = ("pass", "hold", "quote", "order", "order status")
BURST = ("join", "hold", "order")


def doubles() -> "array[float]":
    """An empty array of numbers with fractions."""
    return array("d")


@dataclass
class Calls:
    """The calls of one name: how long each took from when its fan wanted it, and how much of that it was not sent, in
    ms, and the statuses of the answers (0: the connection broke).
    """

    took_ms: "array[float]" = field(default_factory=doubles)
    unsent_ms: "array[float]" = field(default_factory=doubles)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.statuses.items() if status == 0 or status >= 500)


@dataclass
class Record:
    """Facts as they happen. `per_second` counts what happened in each second since the first fan came. `late_ms` is how
    late the crowd's own timers ran, `connections` the most that were open to a pool.
    """

    observations: Observations = field(default_factory=Observations)
    calls: dict[str, Calls] = field(default_factory=lambda: defaultdict(Calls))
    went_home: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    per_second: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    waits_s: dict[int, "array[float]"] = field(default_factory=lambda: defaultdict(doubles))
    confirmed_after_s: "array[float]" = field(default_factory=doubles)
    late_ms: "array[float]" = field(default_factory=doubles)
    connections: Counter[str] = field(default_factory=Counter)
    streams_most: int = 0
    streams_lost: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    frames: int = 0
    generator_cpu_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0

    def count(self, what: str, number: int = 1) -> None:
        self.per_second[what][int(time.monotonic() - self.began_s)] += number

    def total(self, what: str) -> int:
        return self.per_second[what].total()

    def answered(self, name: str, status: int, took_s: float, *, unsent_s: float) -> None:
        calls = self.calls[name]
        calls.took_ms.append(took_s * 1000)
        calls.unsent_ms.append(unsent_s * 1000)
        calls.statuses[status] += 1

    def joined(self, join_seq: int) -> None:
        self.observations.joined_at_place(join_seq)
        self.count("joined")

    def check_not_overtaken(self, join_seq: int, requested_s: float) -> None:
        self.observations.check_not_overtaken(join_seq, requested_s)

    def called(self, join_seq: int) -> None:
        self.observations.record_call(join_seq, time.monotonic())

    def admitted(self, waited_s: float) -> None:
        self.count("admitted")
        self.waits_s[int(time.monotonic() - self.began_s)].append(waited_s)

    def held(self) -> None:
        self.observations.held += 1
        self.count("held")

    def confirmed(self, after_s: float) -> None:
        self.observations.record_purchase([], 1)
        self.confirmed_after_s.append(after_s)
        self.count("confirmed")

    def informed(self) -> None:
        """A fan without a ticket knows that there is none left."""
        self.count("informed")

    def busiest(self, what: str, seconds: int) -> float:
        """The highest rate per second over so many seconds."""
        counts = self.per_second[what]
        if not counts:
            return 0.0
        return max(sum(counts[s] for s in range(first, first + seconds)) for first in range(max(counts) + 1)) / seconds

    @property
    def checkout_calls(self) -> tuple[int, int]:
        """All calls from the pass to the order's end, and those of them that ended in a 5xx or a broken connection."""
        calls = [self.calls[name] for name in CHECKOUT if name in self.calls]
        return sum(each.statuses.total() for each in calls), sum(each.server_errors for each in calls)


EVENT_ID, SECTION_ID, OPERATORS_URL = "night", "GA", f"http://{HOST}"
BURST_S = 0.2
LIVENESS_S, POLLS_PER_S, WINDOW_MS = 240, 2_000, 2_500


@dataclass(frozen=True)
class Rules:
    """The operator's settings for the night: calls a second, fans inside at once, seconds until the sale begins, polls
    of a gateway a second, and the time between two frames of a stream.
    """

    rate_per_s: float
    max_active: int
    begin_s: float
    polls_per_s: int = POLLS_PER_S
    window_ms: int = WINDOW_MS
    liveness_s: int = LIVENESS_S


def event(tickets: int, rules: Rules) -> EventFile:
    """One hall, one ticket for each fan, and rules for a long line: polls and frames are fewer."""
    return EventFile.model_validate({
        "event_id": EVENT_ID, "name": "The night", "venue": "Here", "currency": "EUR",
        "starts_at": datetime.now(UTC) + timedelta(days=90),
        "room": {
            "rate_per_s": rules.rate_per_s, "burst": max(1, round(rules.rate_per_s * BURST_S)),
            "max_active": rules.max_active,
            "sale_starts_at": datetime.now(UTC) + timedelta(seconds=rules.begin_s),
            "session_s": 600, "claim_window_s": 300, "liveness_window_s": rules.liveness_s,
            "updates": {"window_ms": rules.window_ms},
        },
        "sales": {"hold_ttl_s": 300, "pay_ttl_s": 600, "tickets_per_order": 1, "tickets_per_customer": 1},
        "sections": [{"section_id": SECTION_ID, "name": "Standing", "kind": "ga", "capacity": tickets,
                      "price_minor": 3900, "fee_minor": 190}],
    })  # fmt: skip


class _ByRoute(httpx.AsyncHTTPTransport):
    """Sends each request to the service that a balancer would send it to."""

    def __init__(self, ports: Mapping[Service, int]) -> None:
        super().__init__()
        self._ports = ports

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        row = route(request.url.path)
        assert row is not None, request.url
        request.url = request.url.copy_with(port=self._ports[row.service])
        return await super().handle_async_request(request)


class NightSuite:
    """The running suite. `ports` are those of its services, `notifier_ports` those of all its notifiers."""

    def __init__(
        self, trial: Trial, ports: Mapping[Service, int], sandbox_url: str, notifier_ports: tuple[int, ...]
    ) -> None:
        self.trial, self.ports, self._sandbox_url = trial, ports, sandbox_url
        self.notifier_ports = notifier_ports

    async def open(self, sold: EventFile) -> None:
        """Applies the event file and opens the room; nobody is called before its sale starts."""
        async with self._operator() as admin:
            await admin.apply(sold)
            await admin.set_room_state(sold.event_id, "open", {"reason": "the night begins"})

    async def wrong_books(self) -> list[str]:
        """What the checker of histories finds in stock and charges (the crowd is too large to record what each fan was
        told: it compares that itself), and the invariants that are broken.
        """
        url = with_driver(self.trial.postgres_url)
        with TemporaryDirectory() as folder:
            (told := Path(folder) / "history.jsonl").touch()

            async def read() -> list[str]:
                report = await check(told, Sources(url, url, url, self._sandbox_url), [EVENT_ID])
                broken = [f"invariant broken: {row.invariant}" for row in await admin.audit(EVENT_ID) if not row.holds]
                return broken + [violation.sentence for violation in report.violations]

            async with self._operator() as admin:
                return await what_stays_wrong(read)

    @asynccontextmanager
    async def _operator(self) -> AsyncIterator[AdminClient]:
        async with httpx.AsyncClient(transport=_ByRoute(self.ports)) as client:
            yield AdminClient(client, OPERATORS_URL, system.ADMIN_KEY)


async def start(trial: Trial, rules: Rules, *, notifiers: int) -> NightSuite:
    """Starts the provider, which reports to orders, and the five services, the notifier as several processes."""
    orders_port = free_port()
    sandbox_url = await sandbox(trial, f"http://{HOST}:{orders_port}/webhooks/sandbox")
    settings = {"ONSALE_SANDBOX_URL": sandbox_url, "GATEWAY_POLLS_PER_S": str(rules.polls_per_s)}
    ports = await system.serve(trial, SALE_SERVICES, settings, {"orders": orders_port})
    more = [await system.serve_another(trial, "notifier", number=n) for n in range(2, notifiers + 1)]
    return NightSuite(trial, ports, sandbox_url, (ports["notifier"], *more))
