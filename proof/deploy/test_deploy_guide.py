"""The steps of docs/operate/deploy.md, run as written with real databases and nginx, sell a ticket; so does a suite
whose services use plain roles of PostgreSQL, one each or one for all.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from onsale.local.engines import Engines
from proof.deploy.guide import own_databases, sell_a_ticket  # noqa: F401 - a fixture
from tests.deploy.test_service_secrets import make_roles
from tests.support.programs import needs
from tests.support.running.suite import fan_of, running_suite


@pytest.mark.timeout(180)
@needs("nginx")
async def test_the_steps_of_the_guide_sell_a_ticket(own_databases: Engines, tmp_path: Path) -> None:  # noqa: F811
    await sell_a_ticket(own_databases, tmp_path, Path(sys.executable).parent)


@needs("psql")
@pytest.mark.parametrize("per_service", [True, False])
async def test_plain_roles_migrate_and_sell(engines: Engines, tmp_path: Path, per_service: bool) -> None:
    folder = await make_roles(engines, tmp_path, f"plain_{per_service}".lower(), per_service=per_service)
    names = await asyncio.to_thread(lambda: list(folder.glob("*_postgres_url")))
    urls = {path.name.upper(): path.read_text().strip() for path in names}
    with running_suite(**urls) as suite:
        async with suite.browser() as browser:
            fan = await fan_of(browser, await suite.open_event()).come_in()
            order = await fan.buy(await fan.hold({"seats": ["A-1-1"]}))
            assert order["status"] == "confirmed"
