"""The steps of docs/operate/deploy.md, run as written with real databases and nginx, sell a ticket."""

import sys
from pathlib import Path

import pytest

from onsale.local.engines import Engines
from proof.deploy.guide import own_databases, sell_a_ticket  # noqa: F401 - a fixture
from tests.support.programs import needs


@pytest.mark.timeout(180)
@needs("nginx")
async def test_the_steps_of_the_guide_sell_a_ticket(own_databases: Engines, tmp_path: Path) -> None:  # noqa: F811
    await sell_a_ticket(own_databases, tmp_path, Path(sys.executable).parent)
