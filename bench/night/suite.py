"""The suite of the night: five services, one process each, the payment sandbox, the event, and the books afterwards."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.harness import system
from bench.harness.testbed import Trial
from bench.orders.checkout import sandbox
from onsale.admin_client import AdminClient
from onsale.history.checker import check
from onsale.history.checks.books import Sources
from onsale.local.engines import with_driver
from onsale.local.ports import HOST, free_port
from onsale.simulate.books import what_stays_wrong
from shared.contracts.event_file import EventFile
from shared.routes import SALE_SERVICES, Service, route

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
