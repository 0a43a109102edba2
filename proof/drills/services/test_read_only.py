"""The services run on a read-only file system, as in the image, and sell tickets."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onsale.local.engines import Engines
from proof.drills.fleet import Fleet
from proof.drills.sale import on_sale
from shared.routes import SERVICES
from tests.support.engines.engines import fast_directory, in_database, run_in_thread, sql

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
