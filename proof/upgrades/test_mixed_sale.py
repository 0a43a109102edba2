"""A sale goes on while every process is restarted as another version, once of the commit before and once of today."""

from pathlib import Path

import pytest

from onsale.local.engines import Engines
from proof.upgrades.history import NO_HISTORY, commit_before, has_history
from proof.upgrades.mixed_sale import sell

pytestmark = pytest.mark.journey  # it starts processes of its own


@pytest.mark.skipif(not has_history(), reason=NO_HISTORY)
async def test_nothing_is_lost_in_a_sale_by_two_versions(engines: Engines, migrated: str, tmp_path: Path) -> None:
    assert await sell(engines, migrated, tmp_path, commit_before(), seconds=1, seed=1) == []
