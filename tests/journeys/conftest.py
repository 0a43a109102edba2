"""Fixtures for journeys: the command line against the running suite."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.running.program import command_line
from tests.support.running.suite import RunningSuite


@pytest.fixture
def operate(
    suite: RunningSuite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Awaitable[str]]:
    """Runs `onsale …` against the suite, in a thread because a command has an event loop of its own; its output."""
    run = command_line(monkeypatch, capsys)

    async def run_in_thread(*arguments: str) -> str:
        result = await asyncio.to_thread(run, *arguments, "--data-dir", str(suite.data_dir))
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run_in_thread
