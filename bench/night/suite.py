"""The suite of the night: five services, one process each, the payment sandbox, the event, and the books afterwards."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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
LIVENESS_S, POLLS_PER_S, WINDOW_MS = 240, 8_000, 1_000


def event(tickets: int, *, rate_per_s: float, max_active: int, begin_s: float) -> EventFile:
    """One hall, one ticket for each fan, and rules for a long line: polls and frames are fewer."""
    return EventFile.model_validate({
        "event_id": EVENT_ID, "name": "The night", "venue": "Here", "currency": "EUR",
        "starts_at": datetime.now(UTC) + timedelta(days=90),
        "room": {
            "rate_per_s": rate_per_s, "burst": max(1, round(rate_per_s * BURST_S)),
            "max_active": max_active, "sale_starts_at": datetime.now(UTC) + timedelta(seconds=begin_s),
            "session_s": 600, "claim_window_s": 300, "liveness_window_s": LIVENESS_S,
            "updates": {"window_ms": WINDOW_MS},
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
    """The running suite. `ports` are those of its services."""

    def __init__(self, trial: Trial, ports: Mapping[Service, int], sandbox_url: str) -> None:
        self.trial, self.ports, self._sandbox_url = trial, ports, sandbox_url

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


async def start(trial: Trial) -> NightSuite:
    """Starts the provider, which reports to orders, and the five services."""
    orders_port = free_port()
    sandbox_url = await sandbox(trial, f"http://{HOST}:{orders_port}/webhooks/sandbox")
    settings = {"ONSALE_SANDBOX_URL": sandbox_url, "GATEWAY_POLLS_PER_S": str(POLLS_PER_S)}
    ports = await system.serve(trial, SALE_SERVICES, settings, {"orders": orders_port})
    return NightSuite(trial, ports, sandbox_url)
