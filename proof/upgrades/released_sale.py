"""A sale by the suite of a released version, in a data directory that today's suite then opens and goes on with."""

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from onsale.local.engines import with_driver
from proof.upgrades.history import unpacked
from proof.upgrades.rows import environ_of
from tests.support.running.suite import RunningSuite, fan_of
from tests.support.wait import wait_until

EVENT_ID, FANS, SIMULATED_WITHIN_S = "released-2026", 40, 120
EVENT = """
event_id: released-2026
name: One Night Only
venue: The Hangar
currency: EUR
starts_at: 2030-12-18T20:00:00Z
room: {rate_per_s: 100, burst: 100, max_active: 400, session_s: 300, claim_window_s: 60}
sales: {hold_ttl_s: 90, pay_ttl_s: 120, tickets_per_order: 4, tickets_per_customer: 4}
sections:
  - {section_id: A, name: Block A, kind: seated, rows: 6, seats_per_row: 10, price_minor: 3900, fee_minor: 190}
  - {section_id: GA, name: Standing, kind: ga, capacity: 60, price_minor: 3900, fee_minor: 190}
"""
COUNTED = {
    "queue": ("place", "admission"), "inventory": ("reservation", "seat", "section"),
    "orders": ("order", "order_line", "ticket", "money_entry", "payment_attempt"),
}  # fmt: skip
CONFIRMED = "SELECT count(*) FROM orders.\"order\" WHERE status = 'confirmed'"


class DoesNotStart(Exception):
    """The suite of the released version, or its simulation, does not run today."""


@dataclass(frozen=True)
class Sold:
    """The data directory of a sale, the number of fans who bought, and of rows by service and table."""

    data_dir: Path
    bought: int
    rows: dict[str, int]


def sell(commit: str, folder: Path, seed: int) -> Sold:
    """A sale by this commit's own code. Raises `DoesNotStart`."""
    tree, data_dir = unpacked(commit, folder), folder / f"data-{commit[:12]}"
    (folder / "event.yaml").write_text(EVENT)
    suite = RunningSuite(data_dir, "--event", str(folder / "event.yaml"), processes=None, PYTHONPATH=str(tree)).start()
    try:
        suite.wait_until_ready()
        result = data_dir.with_suffix(".json")
        simulate = [sys.executable, "-P", "-m", "onsale", "simulate", "--event-id", EVENT_ID, "--fans", str(FANS)]
        simulate += ["--arrive-over", "2", "--streams", "5", "--seed", str(seed)]
        subprocess.run(
            [*simulate, "--data-dir", str(data_dir), "--json", str(result)], env=environ_of(tree), check=True,
            capture_output=True, timeout=SIMULATED_WITHIN_S,
        )  # fmt: skip
        rows = asyncio.run(_counted(suite.engines["postgres_url"]))
        return Sold(data_dir, int(json.loads(result.read_text())["bought"]), rows)
    except (AssertionError, subprocess.SubprocessError) as failed:
        raise DoesNotStart(str(failed)[-300:]) from failed
    finally:
        suite.stop()


async def go_on(sold: Sold) -> list[str]:
    """What is wrong after today's suite has opened the data directory and sold another ticket."""
    suite = RunningSuite(sold.data_dir).start()
    try:
        suite.wait_until_ready()
        wrong = await _differences(suite.engines["postgres_url"], sold)
        try:
            await wait_until(lambda: suite.is_clean(EVENT_ID), timeout_s=20, interval_s=0.5)
        except AssertionError:
            wrong += [f"the audit finds: {row}" for row in await suite.audit(EVENT_ID)]
        return wrong + await _another_sale(suite)
    except (AssertionError, httpx.HTTPError) as failed:
        return [f"today's suite does not work on it: {failed!r}"[-600:]]
    finally:
        if suite.stop():
            raise AssertionError(suite.log_text()[-2000:])


async def _counted(postgres_url: str) -> dict[str, int]:
    connection: Any = await asyncpg.connect(with_driver(postgres_url))
    try:
        return {
            f"{service}.{table}": await connection.fetchval(f'SELECT count(*) FROM {service}."{table}"')
            for service, tables in COUNTED.items()
            for table in tables
        }
    finally:
        await connection.close()


async def _differences(postgres_url: str, sold: Sold) -> list[str]:
    connection: Any = await asyncpg.connect(with_driver(postgres_url))
    try:
        confirmed = await connection.fetchval(CONFIRMED)
    finally:
        await connection.close()
    wrong = [] if confirmed == sold.bought else [f"{confirmed} orders are confirmed, {sold.bought} fans bought"]
    now = await _counted(postgres_url)
    return wrong + [
        f"{table} has {now[table]} rows of {rows}" for table, rows in sold.rows.items() if now[table] < rows
    ]


async def _another_sale(suite: RunningSuite) -> list[str]:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        order = await fan.buy(await fan.hold({"ga": [{"section_id": "GA1", "quantity": 1}]}))
    return [] if order["status"] == "confirmed" else [f"a new order is {order['status']}"]


def open_sale(commit: str, folder: Path, seed: int) -> list[str]:
    """What is wrong with the sale of this commit under today's suite. Raises `DoesNotStart`."""
    return asyncio.run(go_on(sell(commit, folder, seed)))
