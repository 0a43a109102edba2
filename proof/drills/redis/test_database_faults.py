"""Faults of Valkey and PostgreSQL (out of memory, full disk, resets, lost connections): the answers of every route.

During a fault each route succeeds, refuses with 4xx, or answers 503 with a problem document and `Retry-After`.
Afterwards a fan buys a ticket, and the log has no traceback.
"""

import asyncio
import os
import signal
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from onsale.client import Fan
from onsale.client.fan_documents import OrderAccepted, ReservationView
from onsale.local.engines import RunningDatabases, start_databases, with_driver
from proof.drills.postgres.test_full_disk import END_CONNECTIONS, take_all_connections
from proof.drills.sale import ONE_TICKET, retry
from shared.redis.client import connect
from tests.support.engines.engines import fast_directory, run_in_thread
from tests.support.engines.tcp_proxy import TcpProxy, tcp_proxies
from tests.support.running.suite import RunningSuite, bearer, fan_of
from tests.support.wait import wait_until

FAIL_WRITES = """
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
class FaultySuite:
    """A suite, its Valkey and PostgreSQL, and the proxies between them that inject faults."""

    suite: RunningSuite
    folder: Path
    databases: RunningDatabases
    postgres: TcpProxy
    redis: TcpProxy

    @property
    def postgres_url(self) -> str:
        return with_driver(self.databases.addresses.postgres_url)

    async def valkey(self, *command: str) -> None:
        client = connect(self.databases.addresses.redis_url)
        await client.execute_command(*command)
        await client.aclose()

    async def sql(self, statement: str) -> None:
        connection = await asyncpg.connect(self.postgres_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def faulty() -> Iterator[FaultySuite]:
    with tempfile.TemporaryDirectory(prefix="onsale-faults-", dir=fast_directory()) as name:
        folder = Path(name)
        databases = run_in_thread(start_databases(folder / "engines", fsync=False, environ={}))
        with tcp_proxies(with_driver(databases.addresses.postgres_url), databases.addresses.redis_url) as (
            postgres,
            redis,
        ):
            suite = RunningSuite(
                folder / "data", ONSALE_POSTGRES_URL=with_driver(postgres.url, "asyncpg"), ONSALE_REDIS_URL=redis.url,
            )  # fmt: skip
            faulty = FaultySuite(suite.start(), folder, databases, postgres, redis)
            try:
                suite.wait_until_ready()
                yield faulty
            finally:
                suite.stop()
                run_in_thread(faulty.databases.stop())


@asynccontextmanager
async def out_of_memory(faulty: FaultySuite) -> AsyncIterator[None]:
    await faulty.valkey("CONFIG", "SET", "maxmemory", "1")
    yield
    await faulty.valkey("CONFIG", "SET", "maxmemory", "0")


@asynccontextmanager
async def read_only(faulty: FaultySuite) -> AsyncIterator[None]:
    await faulty.valkey("REPLICAOF", "127.0.0.1", "1")
    yield
    await faulty.valkey("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def repeated(fault: Callable[[], Awaitable[object]], *, pause_s: float) -> AsyncIterator[None]:
    """Does this again and again."""
    done = asyncio.Event()

    async def repeat() -> None:
        while not done.is_set():
            await fault()
            await asyncio.sleep(pause_s)

    repeating = asyncio.create_task(repeat())
    yield
    done.set()
    await repeating


def resets(wire: TcpProxy) -> AbstractAsyncContextManager[None]:
    """Resets every connection again and again, and accepts new ones in between."""

    async def reset() -> None:
        wire.set_mode("resets")
        await asyncio.sleep(0.03)
        wire.set_mode("passes")

    return repeated(reset, pause_s=0.05)


@asynccontextmanager
async def half_open(wire: TcpProxy) -> AsyncIterator[None]:
    wire.set_mode("swallows")
    yield
    wire.set_mode("resets")
    await asyncio.sleep(0.05)
    wire.set_mode("passes")


@asynccontextmanager
async def terminated(faulty: FaultySuite) -> AsyncIterator[None]:
    """Ends all connections of the services again and again, as an administrator."""
    admin = await asyncpg.connect(faulty.postgres_url)
    async with repeated(lambda: admin.fetch(END_CONNECTIONS), pause_s=0.02):
        yield
    await admin.close()


@asynccontextmanager
async def disk_full(faulty: FaultySuite) -> AsyncIterator[None]:
    await faulty.sql(FAIL_WRITES)
    yield
    await faulty.sql("DROP SCHEMA fault CASCADE")


@asynccontextmanager
async def no_connection_left(faulty: FaultySuite) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await take_all_connections(faulty.postgres_url, stack)
        yield


@asynccontextmanager
async def killed(faulty: FaultySuite) -> AsyncIterator[None]:
    """Kills the postmaster, and restarts both servers on their data afterwards."""
    home = faulty.folder / "engines" / "engines" / "postgres" / "data"
    os.kill(int((home / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    yield
    await asyncio.to_thread(run_in_thread, faulty.databases.stop())
    faulty.databases = await asyncio.to_thread(
        run_in_thread, start_databases(faulty.folder / "engines", fsync=False, environ={})
    )
    faulty.postgres.redirect_to(faulty.postgres_url)
    faulty.redis.redirect_to(faulty.databases.addresses.redis_url)


FAULTS: dict[str, Callable[[FaultySuite], Any]] = {
    "valkey out of memory": out_of_memory,
    "valkey read-only": read_only,
    "valkey resets": lambda faulty: resets(faulty.redis),
    "valkey half-open": lambda faulty: half_open(faulty.redis),
    "postgres disk full": disk_full,
    "postgres ends all": terminated,
    "postgres without connections": no_connection_left,
    "postgres resets": lambda faulty: resets(faulty.postgres),
    "postgres half-open": lambda faulty: half_open(faulty.postgres),
    "postgres and valkey killed": killed,
}


@dataclass
class Fans:
    """One fan at each stage of a sale."""

    waiting: Fan
    called: Fan
    inside: Fan
    holder: Fan
    reservation: ReservationView
    order: OrderAccepted


async def fans_at_every_stage(browser: httpx.AsyncClient, event_id: str) -> Fans:
    waiting, called, inside, holder, buyer = (fan_of(browser, event_id) for _ in range(5))
    await asyncio.gather(waiting.join(), called.join(), inside.come_in(), holder.come_in(), buyer.come_in())
    await called.wait()
    reservation = await holder.hold(ONE_TICKET)
    order = await buyer.order(await buyer.hold(ONE_TICKET))
    return Fans(waiting, called, inside, holder, reservation, order)


def requests_to_all_routes(
    browser: httpx.AsyncClient, operator: httpx.AsyncClient, fans: Fans
) -> dict[str, Awaitable[httpx.Response]]:
    event_id, path = fans.waiting.event_id, f"/events/{fans.waiting.event_id}"
    with_pass, owner = bearer(fans.inside.admission), bearer(fans.order["order_token"])
    order = f"/orders/{fans.order['reference']}"
    forward_auth, shop = f"/gate/traefik/check?event={event_id}", {"x-forwarded-host": "shop.example"}

    def hold(selection: Any) -> Awaitable[httpx.Response]:
        headers = with_pass | {"idempotency-key": str(uuid.uuid4())}
        return browser.post(f"{path}/reservations", json=selection, headers=headers)

    def order_held() -> Awaitable[httpx.Response]:
        body = {
            "reservation_id": fans.reservation["reservation_id"], "currency": fans.reservation["currency"],
            "expected_total_minor": fans.reservation["total_amount_minor_units"], "customer": fans.holder.customer,
            "payment": fans.holder.payment,
        }  # fmt: skip
        key = f"{fans.holder.checkout_key}.{fans.reservation['reservation_id']}"
        return browser.post("/orders", json=body, headers=bearer(fans.holder.admission) | {"idempotency-key": key})

    async def stream(path: str, headers: dict[str, str]) -> httpx.Response:
        async with browser.stream("GET", path, headers=headers) as answer:
            if answer.status_code != 200:
                await answer.aread()
            return answer

    return {
        "join": browser.post(f"{path}/queue", headers={"idempotency-key": str(uuid.uuid4())}),
        "status": browser.get(f"{path}/queue/status", headers=bearer(fans.waiting.queue_token)),
        "line": browser.get(f"{path}/queue"),
        "challenge": browser.get(f"{path}/queue/challenge"),
        "claim": browser.post(f"{path}/queue/pass", headers=bearer(fans.called.queue_token)),
        "leave": browser.delete(f"{path}/queue", headers=bearer(fans.waiting.queue_token)),
        "events": browser.get("/events"),
        "event": browser.get(path),
        "sections": browser.get(f"{path}/sections"),
        "seats": browser.get(f"{path}/sections/A/seats", headers=with_pass),
        "hold": hold(ONE_TICKET),
        "best": hold({"best_available": {"section_id": "A", "quantity": 1}}),
        "reservation": browser.get(
            f"{path}/reservations/{fans.reservation['reservation_id']}", headers=bearer(fans.holder.admission)
        ),
        "quote": browser.post(
            "/orders/quote", headers=bearer(fans.holder.admission),
            json={"reservation_id": fans.reservation["reservation_id"]},
        ),
        "order": order_held(),
        "order status": browser.get(order, headers=owner),
        "orders": browser.get("/orders", headers=with_pass),
        "tickets": browser.get(f"{order}/tickets", headers=owner),
        "forward-auth": browser.get(forward_auth, headers=shop),
        "forward-auth with a pass": browser.get(forward_auth, headers={**shop, **with_pass}),
        "stream": stream(f"{path}/sections/updates", with_pass),
        "order stream": stream(f"{order}/updates", owner),
        "room": operator.get(f"/admin/events/{event_id}/room"),
        "rate": operator.patch(f"/admin/events/{event_id}/room", json={"rate_per_s": 999, "reason": "a drill"}),
        "pause": operator.post(f"/admin/events/{event_id}/room/resume", json={"reason": "a drill"}),
        "codes": operator.get(f"/admin/queue/events/{event_id}/codes"),
        "line audit": operator.get(f"/admin/queue/events/{event_id}/audit"),
        "stock": operator.get(f"/admin/inventory/events/{event_id}/stock"),
        "stock audit": operator.get(f"/admin/inventory/events/{event_id}/audit"),
        "reconcile": operator.post(f"/admin/inventory/events/{event_id}/reconcile"),
        "admin orders": operator.get("/admin/orders", params={"event_id": event_id}),
        "timeline": operator.get(f"/admin/orders/{fans.order['reference']}/timeline"),
        "ready": browser.get("/readyz"),
    }  # fmt: skip


def unacceptable(name: str, answer: httpx.Response | BaseException) -> str | None:
    """Why an answer during a fault is not acceptable, or `None`."""
    if isinstance(answer, BaseException):
        return f"{name}: {answer!r}"
    if answer.status_code < 500:
        return None
    problem = answer.json() if answer.headers["content-type"] == "application/problem+json" else {}
    slug = str(problem.get("type", "")).removeprefix("/problems/")
    is_problem = answer.status_code == 503 and "retry-after" in answer.headers and slug not in ("", "internal-error")
    return None if is_problem else f"{name}: {answer.status_code} {slug} {answer.text[:200]}"


@pytest.mark.parametrize("name", FAULTS)
async def test_during_a_fault_routes_answer_503_problems_and_sales_resume_afterwards(
    faulty: FaultySuite, name: str
) -> None:
    event_id = await faulty.suite.open_event()
    log_start, failures = len(faulty.suite.log_text()), Counter[str]()
    async with faulty.suite.browser() as browser, faulty.suite.operator() as operator:
        fans = await fans_at_every_stage(browser, event_id)
        async with FAULTS[name](faulty):
            for _ in range(ROUNDS):
                requests = requests_to_all_routes(browser, operator, fans)
                answers = await asyncio.gather(*requests.values(), return_exceptions=True)
                failures.update(fault for pair in zip(requests, answers, strict=True) if (fault := unacceptable(*pair)))
                await asyncio.sleep(0.1)
        ended_s = time.monotonic()
        await wait_for_a_purchase(browser, event_id)
        print(f"{name}: well after {time.monotonic() - ended_s:.1f} s")
        await wait_until(lambda: faulty.suite.is_clean(event_id), timeout_s=30, interval_s=0.3)
    assert not failures
    lines = [line for line in faulty.suite.log_text()[log_start:].splitlines() if line.startswith("{")]
    assert not [line for line in lines if "exception" in orjson.loads(line)]
    assert "Traceback" not in faulty.suite.log_text()[log_start:]


async def wait_for_a_purchase(browser: httpx.AsyncClient, event_id: str) -> None:
    """Waits until a new fan can buy, for at most 30 s."""

    async def buy() -> None:
        fan = await fan_of(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold(ONE_TICKET)))["status"] == "confirmed"

    await retry(buy, within_s=30)
