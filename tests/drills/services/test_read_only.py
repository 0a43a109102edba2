"""The services as the image runs them, on a file system where nothing can be written: they sell all the same."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onsale.local.engines import Engines
from shared.web.routes import SERVICES
from tests.drills.crowd import PatientFan
from tests.drills.fleet import Fleet
from tests.support.engines.engines import fast_place, in_database, run_apart, sql
from tests.support.running.suite import bearer

ALONE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
NOTHING_IS_WRITTEN = "mount -o bind,remount,ro / && ! touch /tmp/onsale-writes 2>/dev/null"


@pytest.fixture
def sealed(engines: Engines, migrated: str) -> Iterator[Fleet]:
    if subprocess.run([*ALONE, NOTHING_IS_WRITTEN], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a read-only view of its files")
    run_apart(sql(engines, f"create database sealed template {migrated}"))
    with tempfile.TemporaryDirectory(prefix="onsale-sealed-", dir=fast_place()) as folder:
        fleet = Fleet(Path(folder) / "data", in_database(engines, "sealed"))
        for service in SERVICES:
            program = fleet.programs[service]
            program.command = [*ALONE, f'{NOTHING_IS_WRITTEN} && exec "$@"', "sh", *program.command]
        try:
            yield fleet.start().wait_until_ready()
        finally:
            fleet.end()


@pytest.mark.drill
async def test_a_ticket_is_sold_and_printed_where_nothing_can_be_written(sealed: Fleet) -> None:
    event_id = await sealed.open_event()
    async with sealed.browser() as browser:
        fan = await PatientFan(browser, event_id).come_in()
        order = (await fan.order(await fan.hold(seats=["A-1-1"]))).json()
        assert (await fan.ending(order))["status"] == "confirmed"
        mine = bearer(order["order_token"])
        printed = await browser.get(f"/orders/{order['reference']}/tickets.pdf", headers=mine)
        assert printed.content.startswith(b"%PDF"), printed.text
    assert await sealed.audit(event_id) == []
