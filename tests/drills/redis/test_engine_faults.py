"""Engines that are there and refuse, vanish in the middle of a word, or come back: what every route answers meanwhile.

Each answer is the one asked for, a refusal that fits, or 503 with its own problem and the time to come back. Afterwards
a fan buys a ticket, and the log holds lines, no tracebacks.
"""

import asyncio
import os
import signal
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from onsale.local.engines import RunningDatabases, start_databases, with_driver
from shared.redis.client import connect
from tests.support.engines.engines import fast_place, run_apart
from tests.support.engines.fault_proxy import FaultWire, wired
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until

pytestmark = pytest.mark.drill
OURS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onsale-%'"
FULL = """
CREATE SCHEMA fault;
CREATE FUNCTION fault.full() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
DO $$ DECLARE t regclass; BEGIN
  FOR t IN SELECT oid::regclass FROM pg_class WHERE relkind = 'r'
           AND relnamespace::regnamespace::text IN ('queue', 'inventory', 'orders')
  LOOP EXECUTE format('CREATE TRIGGER fault BEFORE INSERT OR UPDATE ON %s EXECUTE FUNCTION fault.full()', t); END LOOP;
END $$"""
ROUNDS = 4


@dataclass
class Place:
    """A suite, the wires to its engines, and the engines behind them."""

    suite: RunningSuite
    folder: Path
    engines: RunningDatabases
    postgres: FaultWire
    redis: FaultWire

    @property
    def postgres_url(self) -> str:
        return with_driver(self.engines.addresses.postgres_url)

    async def valkey(self, *command: str) -> None:
        client = connect(self.engines.addresses.redis_url)
        await client.execute_command(*command)
        await client.aclose()

    async def sql(self, statement: str) -> None:
        connection = await asyncpg.connect(self.postgres_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="onsale-faults-", dir=fast_place()) as name:
        folder = Path(name)
        engines = run_apart(start_databases(folder / "engines", fsync=False, environ={}))
        with wired(with_driver(engines.addresses.postgres_url), engines.addresses.redis_url) as (postgres, redis):
            suite = RunningSuite(
                folder / "data", ONSALE_POSTGRES_URL=with_driver(postgres.url, "asyncpg"), ONSALE_REDIS_URL=redis.url,
            )  # fmt: skip
            made = Place(suite.start(), folder, engines, postgres, redis)
            try:
                suite.wait_until_ready()
                yield made
            finally:
                suite.stop()
                run_apart(made.engines.stop())


@asynccontextmanager
async def out_of_memory(place: Place) -> AsyncIterator[None]:
    await place.valkey("CONFIG", "SET", "maxmemory", "1")
    yield
    await place.valkey("CONFIG", "SET", "maxmemory", "0")


@asynccontextmanager
async def read_only(place: Place) -> AsyncIterator[None]:
    await place.valkey("REPLICAOF", "127.0.0.1", "1")
    yield
    await place.valkey("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def resets(wire: FaultWire) -> AsyncIterator[None]:
    """Every connection is reset, again and again, and new ones are taken in between."""
    done = asyncio.Event()

    async def strike() -> None:
        while not done.is_set():
            wire.becomes("resets")
            await asyncio.sleep(0.03)
            wire.becomes("passes")
            await asyncio.sleep(0.05)

    striking = asyncio.create_task(strike())
    yield
    done.set()
    await striking


@asynccontextmanager
async def half_open(wire: FaultWire) -> AsyncIterator[None]:
    wire.becomes("swallows")
    yield
    wire.becomes("resets")
    await asyncio.sleep(0.05)
    wire.becomes("passes")


@asynccontextmanager
async def terminated(place: Place) -> AsyncIterator[None]:
    """The database's admin ends all our connections, again and again."""
    done, admin = asyncio.Event(), await asyncpg.connect(place.postgres_url)

    async def strike() -> None:
        while not done.is_set():
            await admin.fetch(OURS)
            await asyncio.sleep(0.02)

    striking = asyncio.create_task(strike())
    yield
    done.set()
    await striking
    await admin.close()


@asynccontextmanager
async def disk_full(place: Place) -> AsyncIterator[None]:
    await place.sql(FULL)
    yield
    await place.sql("DROP SCHEMA fault CASCADE")


@asynccontextmanager
async def no_connection_left(place: Place) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        mine: list[asyncpg.Connection] = []
        while True:
            try:
                mine.append(await asyncpg.connect(place.postgres_url))
            except asyncpg.TooManyConnectionsError:
                if not await mine[0].fetch(OURS):
                    break
            else:
                stack.push_async_callback(mine[-1].close)
        yield


@asynccontextmanager
async def killed(place: Place) -> AsyncIterator[None]:
    """kill -9 of the postmaster, and a new one on its data."""
    home = place.folder / "engines" / "engines" / "postgres" / "data"
    os.kill(int((home / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    yield
    await asyncio.to_thread(run_apart, place.engines.stop())
    place.engines = await asyncio.to_thread(
        run_apart, start_databases(place.folder / "engines", fsync=False, environ={})
    )
    place.postgres.lead_to(place.postgres_url)
    place.redis.lead_to(place.engines.addresses.redis_url)


FAULTS: dict[str, Callable[[Place], Any]] = {
    "valkey out of memory": out_of_memory,
    "valkey read-only": read_only,
    "valkey resets": lambda place: resets(place.redis),
    "valkey half-open": lambda place: half_open(place.redis),
    "postgres disk full": disk_full,
    "postgres ends all": terminated,
    "postgres without connections": no_connection_left,
    "postgres resets": lambda place: resets(place.postgres),
    "postgres half-open": lambda place: half_open(place.postgres),
    "postgres and valkey killed": killed,
}


@dataclass
class Crowd:
    """Fans at every stage, who go on during a fault."""

    waiting: Fan
    called: Fan
    inside: Fan
    holder: Fan
    reservation: dict[str, Any]
    order: dict[str, Any]


async def gather(browser: httpx.AsyncClient, event_id: str) -> Crowd:
    waiting, called, inside, holder, buyer = (Fan(browser, event_id) for _ in range(5))
    await asyncio.gather(waiting.join(), called.join(), inside.come_in(), holder.come_in(), buyer.come_in())
    await called.wait_for_the_call()
    reservation = await holder.hold(ga=[{"section_id": "GA1", "quantity": 1}])
    order = await buyer.order(await buyer.hold(ga=[{"section_id": "GA1", "quantity": 1}]))
    return Crowd(waiting, called, inside, holder, reservation, order.json())


def asks(browser: httpx.AsyncClient, operator: httpx.AsyncClient, crowd: Crowd) -> dict[str, Awaitable[httpx.Response]]:
    event_id, path = crowd.waiting.event_id, crowd.waiting.path
    passed, mine = bearer(crowd.inside.admission), bearer(crowd.order["order_token"])
    order = f"/orders/{crowd.order['reference']}"

    async def stream(path: str, headers: dict[str, str]) -> httpx.Response:
        async with browser.stream("GET", path, headers=headers) as answer:
            if answer.status_code != 200:
                await answer.aread()
            return answer

    return {
        "join": browser.post(f"{path}/queue", headers={"idempotency-key": str(uuid.uuid4())}),
        "status": browser.get(f"{path}/queue/status", headers=bearer(crowd.waiting.token)),
        "line": browser.get(f"{path}/queue"),
        "challenge": browser.get(f"{path}/queue/challenge"),
        "claim": browser.post(f"{path}/queue/pass", headers=bearer(crowd.called.token)),
        "leave": browser.delete(f"{path}/queue", headers=bearer(crowd.waiting.token)),
        "events": browser.get("/events"),
        "event": browser.get(path),
        "sections": browser.get(f"{path}/sections"),
        "seats": browser.get(f"{path}/sections/A/seats", headers=passed),
        "hold": crowd.inside.reserve(ga=[{"section_id": "GA1", "quantity": 1}]),
        "best": crowd.inside.reserve(best=[{"section_id": "A", "quantity": 1}]),
        "reservation": browser.get(
            f"{path}/reservations/{crowd.reservation['reservation_id']}", headers=bearer(crowd.holder.admission)
        ),
        "quote": browser.post(
            "/orders/quote", headers=bearer(crowd.holder.admission),
            json={"reservation_id": crowd.reservation["reservation_id"]},
        ),
        "order": crowd.holder.order(crowd.reservation),
        "order status": browser.get(order, headers=mine),
        "orders": browser.get("/orders", headers=passed),
        "tickets": browser.get(f"{order}/tickets", headers=mine),
        "gate": browser.get(f"/gate/traefik/check?event={event_id}", headers={"x-forwarded-host": "shop.example"}),
        "gate with a pass": browser.get(
            f"/gate/traefik/check?event={event_id}", headers={"x-forwarded-host": "shop.example", **passed}
        ),
        "stream": stream(f"{path}/sections/updates", passed),
        "order stream": stream(f"{order}/updates", mine),
        "room": operator.get(f"/admin/events/{event_id}/room"),
        "rate": operator.patch(f"/admin/events/{event_id}/room", json={"rate_per_s": 999, "reason": "a drill"}),
        "pause": operator.post(f"/admin/events/{event_id}/room/resume", json={"reason": "a drill"}),
        "codes": operator.get(f"/admin/queue/events/{event_id}/codes"),
        "line audit": operator.get(f"/admin/queue/events/{event_id}/audit"),
        "stock": operator.get(f"/admin/inventory/events/{event_id}/stock"),
        "stock audit": operator.get(f"/admin/inventory/events/{event_id}/audit"),
        "reconcile": operator.post(f"/admin/inventory/events/{event_id}/reconcile"),
        "desk": operator.get("/admin/orders", params={"event_id": event_id}),
        "timeline": operator.get(f"/admin/orders/{crowd.order['reference']}/timeline"),
        "ready": browser.get("/readyz"),
    }  # fmt: skip


def wrong(name: str, answer: httpx.Response | BaseException) -> str | None:
    """What is wrong with an answer during a fault."""
    if isinstance(answer, BaseException):
        return f"{name}: {answer!r}"
    if answer.status_code < 500:
        return None
    problem = answer.json() if answer.headers["content-type"] == "application/problem+json" else {}
    slug = str(problem.get("type", "")).removeprefix("/problems/")
    fits = answer.status_code == 503 and "retry-after" in answer.headers and slug not in ("", "internal-error")
    return None if fits else f"{name}: {answer.status_code} {slug} {answer.text[:200]}"


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_an_engine_is_a_503_with_its_problem_and_passes(place: Place, name: str) -> None:
    event_id = await place.suite.open_event()
    said, found = len(place.suite.log_text()), Counter[str]()
    async with place.suite.browser() as browser, place.suite.operator() as operator:
        crowd = await gather(browser, event_id)
        async with FAULTS[name](place):
            for _ in range(ROUNDS):
                asked = asks(browser, operator, crowd)
                answers = await asyncio.gather(*asked.values(), return_exceptions=True)
                found.update(word for pair in zip(asked, answers, strict=True) if (word := wrong(*pair)))
                await asyncio.sleep(0.1)
        ended_s = time.monotonic()
        await buys(browser, event_id)
        print(f"{name}: well after {time.monotonic() - ended_s:.1f} s")  # noqa: T201
        await wait_until(lambda: place.suite.is_clean(event_id), timeout_s=30, interval_s=0.3)
    assert not found
    lines = [line for line in place.suite.log_text()[said:].splitlines() if line.startswith("{")]
    assert not [line for line in lines if "exception" in orjson.loads(line)]
    assert "Traceback" not in place.suite.log_text()[said:]


async def buys(browser: httpx.AsyncClient, event_id: str) -> None:
    """A new fan, who tries again as pages do."""
    last: Exception | None = None
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        try:
            fan = await Fan(browser, event_id).come_in()
            order = await fan.buy(await fan.hold(ga=[{"section_id": "GA1", "quantity": 1}]))
            assert order["status"] == "confirmed", order
            return
        except (AssertionError, httpx.HTTPError) as failed:
            last = failed
            await asyncio.sleep(0.2)
    raise AssertionError(f"nobody could buy within 30 s: {last!r}")
