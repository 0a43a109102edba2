"""Orders are killed and frozen during purchases: each fan is charged once and gets what is paid; and services sell from
a read-only file system.
"""

import asyncio
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from onsale.local.engines import Engines
from onsale.local.ports import HOST, free_port
from proof.drills.fleet import Fleet
from proof.drills.sale import FLOOR, ONE_TICKET, on_sale, until_count
from shared.routes import SERVICES
from tests.support.engines.engines import fast_directory, in_database, run_in_thread, sql
from tests.support.running.program import Program
from tests.support.wait import until, wait_until

METHODS = ("ok", "slow", "double_success", "duplicate_webhooks", "error_then_ok", "ok")
FANS, KILLS = 8, 2
ORDERS = 'SELECT count(*) FROM orders."order" WHERE event_id = $1'
WRITTEN = """
    SELECT o.xmin::text, array(SELECT id FROM orders.money_entry m WHERE m.reference = o.reference ORDER BY id)
    FROM orders."order" o WHERE reference = $1"""


async def test_each_fan_pays_once_although_the_orders_process_is_killed_during_purchases(
    fleet: Fleet, database: asyncpg.Connection
) -> None:
    async with on_sale(fleet, sections=FLOOR) as sale:
        methods = (METHODS[number % len(METHODS)] for number in range(FANS))
        buying = asyncio.gather(*(sale.buy(ONE_TICKET, method) for method in methods))
        for kill in range(1, KILLS + 1):
            await until_count(database, kill * FANS // (KILLS + 2) + 1, ORDERS, sale.event_id)
            await fleet.restart("orders", signal.SIGKILL)
        bought = await buying
        assert [order["status"] for order in bought] == ["confirmed"] * FANS


async def test_an_orders_process_that_was_frozen_for_too_long_charges_and_writes_nothing(
    fleet: Fleet, database: asyncpg.Connection
) -> None:
    """The process is frozen while it waits for the provider, which has charged already. Another process takes the order
    over and confirms it; then the first wakes up and reads the provider's answer.
    """
    other, port = _another_orders(fleet)
    async with on_sale(fleet, sections=FLOOR) as sale, httpx.AsyncClient(base_url=fleet.urls["sandbox"]) as sandbox:
        fan = await sale.come_in()
        reservation = await fan.hold(ONE_TICKET)
        assert (await sandbox.post("/control", json={"latency_s": 3.0})).is_success
        try:
            order = await fan.order(reservation)
            reference = order["reference"]
            await wait_until(lambda: _charges(fleet, reference), timeout_s=10)
            fleet.programs["orders"].send(signal.SIGSTOP)
            assert await _has_status(database, reference, "pending")
            assert (await sandbox.post("/control", json={"latency_s": 0.0})).is_success
            other.start()
            await asyncio.to_thread(until, lambda: httpx.get(f"http://{HOST}:{port}/readyz").is_success, what="orders")
            await wait_until(lambda: _has_status(database, reference, "confirmed"), timeout_s=20)
            written = await database.fetchrow(WRITTEN, reference)
            fleet.programs["orders"].send(signal.SIGCONT)
            await wait_until(lambda: _lost_orders(fleet), timeout_s=20)
            assert await database.fetchrow(WRITTEN, reference) == written
        finally:
            fleet.programs["orders"].send(signal.SIGCONT)
            await asyncio.to_thread(other.end, signal.SIGTERM)
            await sandbox.post("/control", json={"latency_s": 0.0})
        status = await fan.settled(order)
        assert status["status"] == "confirmed"
        [charge] = await _charges(fleet, reference)
        assert (charge["captured_minor"], charge["refunded_minor"]) == (status["total_minor"], 0)


def _another_orders(fleet: Fleet) -> tuple[Program, int]:
    """A second orders process on the same database, not yet started, and its port."""
    port = free_port()
    env = fleet.programs["orders"].env | {"ORDERS_PORT": str(port), "ORDERS_INTERNAL_PORT": str(free_port())}
    return Program(fleet.programs["orders"].command, fleet.data_dir / "orders-2.log", env=env), port


async def _charges(fleet: Fleet, reference: str | None = None) -> list[dict[str, Any]]:
    params = {"limit": "1000"} | ({"reference": reference} if reference else {})
    async with httpx.AsyncClient() as client:
        return list((await client.get(f"{fleet.urls['sandbox']}/charges", params=params)).json()["charges"])


async def _has_status(database: asyncpg.Connection, reference: str, status: str) -> bool:
    return bool(await database.fetchval('SELECT status FROM orders."order" WHERE reference = $1', reference) == status)


async def _lost_orders(fleet: Fleet) -> bool:
    """Whether the process of the fleet has found that an order that it worked on is another's."""
    async with httpx.AsyncClient() as client:
        metrics = (await client.get(f"http://{HOST}:{fleet.internal_ports['orders'][0]}/metrics")).text
    return re.search(r"^orders_lost_total [1-9]", metrics, re.MULTILINE) is not None


UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MAKE_READ_ONLY = "mount -o bind,remount,ro / && ! touch /tmp/onsale-writes 2>/dev/null"


@pytest.fixture
def read_only_fleet(engines: Engines, migrated: str) -> Iterator[Fleet]:
    if subprocess.run([*UNSHARE, MAKE_READ_ONLY], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no read-only view of its files")
    run_in_thread(sql(engines, f"create database sealed template {migrated}"))
    with tempfile.TemporaryDirectory(prefix="onsale-sealed-", dir=fast_directory()) as folder:
        fleet = Fleet(Path(folder) / "data", in_database(engines, "sealed"))
        for service in SERVICES:
            program = fleet.programs[service]
            program.command = [*UNSHARE, f'{MAKE_READ_ONLY} && exec "$@"', "sh", *program.command]
        try:
            yield fleet.start().wait_until_ready()
        finally:
            fleet.end()


async def test_a_ticket_is_sold_and_its_pdf_made_on_a_read_only_file_system(read_only_fleet: Fleet) -> None:
    async with on_sale(read_only_fleet) as sale:
        fan = await sale.come_in()
        order = await fan.order(await fan.hold({"seats": ["A-1-1"]}))
        assert (await fan.settled(order))["status"] == "confirmed"
        pdf = await fan.client.tickets_pdf(order["reference"], token=order["order_token"])
        assert pdf.startswith(b"%PDF")
