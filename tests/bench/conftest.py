"""Fixtures for the benchmarks: the testbed and a trial on the databases of the tests."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.harness.measurement import Testbed, Trial
from onsale.local.engines import Engines


@pytest.fixture
def testbed(engines: Engines, migrated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    """Few connections for the baselines; the processor time of "databases" is that of the test process."""
    monkeypatch.setattr("bench.baselines.service.CONNECTIONS", 4)
    for folder in ("log", "engines"):
        (tmp_path / folder).mkdir()
    return Testbed(tmp_path, engines, {"test process": os.getpid()}, template=migrated)


@pytest.fixture
async def trial(testbed: Testbed) -> AsyncIterator[Trial]:
    async with testbed.trial() as trial:
        yield trial
