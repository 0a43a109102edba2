"""Fixtures for tests of the command line and of the payment sandbox."""

from collections.abc import AsyncIterator

import pytest

from tests.onsale.sandbox_client import SandboxClient, sandbox
from tests.support.running.program import Command, command_line
from tests.support.running.suite import RunningSuite


@pytest.fixture
async def client() -> AsyncIterator[SandboxClient]:
    async with sandbox() as client:
        yield client


@pytest.fixture
def onsale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `onsale …` in this process, as the installed command does."""
    return command_line(monkeypatch, capsys)


@pytest.fixture
def operate(onsale: Command, suite: RunningSuite) -> Command:
    """Runs `onsale …` against the running suite."""
    return lambda *arguments: onsale(*arguments, "--data-dir", str(suite.data_dir))
