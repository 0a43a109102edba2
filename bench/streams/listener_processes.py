"""Starts processes of `bench.streams.listeners` and collects their reports."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.streams.listeners import ListenerGroup

LINE_S, STOP_S = 150.0, 30.0


class ConnectionsMissing(Exception):
    """Not all listeners could connect in time."""


@dataclass
class ListenerProcesses:
    """Connected listeners; `connect_s` is how long connecting took the slowest process."""

    processes: list[Process]
    connect_s: float
    lost: int

    async def collect(self) -> list[dict[str, Any]]:
        """The report of each process since the last call."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(b"?\n")
        return [await _line(process) for process in self.processes]


@asynccontextmanager
async def connect_listeners(groups: Sequence[ListenerGroup]) -> AsyncIterator[ListenerProcesses]:
    """One process for each group, all connected inside this context."""
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(_process(group)) for group in groups]
        reports = await asyncio.gather(*map(_line, processes))
        yield ListenerProcesses(processes, max(one["seconds"] for one in reports), sum(one["lost"] for one in reports))


@asynccontextmanager
async def _process(group: ListenerGroup) -> AsyncIterator[Process]:
    command = [sys.executable, "-P", "-m", "bench.streams.listeners"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(group)).encode() + b"\n")
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:  # it is still connecting
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(LINE_S):
        line = await process.stdout.readline()
    if not line:
        raise ConnectionsMissing
    report: dict[str, Any] = json.loads(line)
    return report
