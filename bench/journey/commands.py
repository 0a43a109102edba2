"""README's two commands as child processes: `onsale up --demo` in an empty data directory, and `onsale simulate`."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.harness.measurement import (
    CheckFailed,
    command_line,
    cpu_s_by,
    descendants,
    environment_without_ours,
    until_ready,
)
from onsale.local.ports import HOST, free_port
from onsale.local.process import Child
from onsale.simulate.observations import wrong_books
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
SAMPLER = Path(__file__).parent / "sampler"
SAMPLES_S, POLL_S = 10.0, 0.05
PARTS = (("onsale.sandbox", "sandbox"), ("postgres", "PostgreSQL"), ("valkey", "Valkey"), ("redis-server", "Valkey"))
SUITE = "suite"


@dataclass(frozen=True)
class Visitors:
    """Who comes to which event: the program that plays the fans, and its options."""

    event_id: str
    program: str
    options: tuple[str, ...]

    @classmethod
    def simulated(cls, event_id: str, *, fans: int, arrive_over_s: float) -> "Visitors":
        """Those of `onsale simulate`."""
        return cls(event_id, "onsale", ("simulate", "--fans", str(fans), "--arrive-over", f"{arrive_over_s:g}"))


@dataclass(frozen=True)
class Journey:
    """One run: what the simulator wrote, and seconds of processor time by process, the crowd's included."""

    crowd: Mapping[str, Any]
    spent_s: Mapping[str, float]


def part_of(command_line: str) -> str:
    """The part of the suite that this process belongs to."""
    return next((part for sign, part in PARTS if sign in command_line), SUITE)


class DemoSuite:
    """A running `onsale up --demo`."""

    def __init__(self, child: Child, url: str, data_dir: Path) -> None:
        self.url, self._child, self._data_dir, self._told = url, child, data_dir, data_dir / "history.jsonl"

    @property
    def _pid(self) -> int:
        return self._child._supervisor.pid

    async def visit(self, visitors: Visitors, *, history: bool = False) -> Journey:
        """Sends the crowd; with `history` it records what each fan was told. Raises `CheckFailed`."""
        result = self._data_dir / "crowd.json"
        options = ["--event-id", visitors.event_id, "--url", self.url, "--json", str(result)]
        before = cpu_s_by(self._pid, part_of)
        sent = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", visitors.program, *visitors.options, *options,
            *(["--history", str(self._told)] if history else []),
            env={**environment_without_ours(), "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await sent.communicate()
        after = cpu_s_by(self._pid, part_of)
        if not result.exists():
            raise CheckFailed(f"{visitors.program}: {output.decode()[-500:]}")
        found = orjson.loads(result.read_bytes())
        spent = {part: after[part] - before[part] for part in after}
        return Journey(found, {**spent, "crowd": found["cpu_s"]})

    async def check_books(self, event_id: str) -> None:
        """Compares what fans were told, if it was recorded, the databases and the charges. Raises `CheckFailed`."""
        self._told.touch()
        if wrong := await wrong_books(self.url, self._data_dir, event_id, self._told):
            raise CheckFailed(f"wrong in the books: {'; '.join(wrong[:3])}")

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[Counter[str]]:
        """Counts what its Python processes work on within this context; the counts are there after it."""
        counts, folder = Counter[str](), self._data_dir
        pids = {int(path.stem) for path in folder.glob("*.ready")} & descendants({self._pid})
        _signal_all(pids, signal.SIGUSR1)
        yield counts
        _signal_all(pids, signal.SIGUSR2)
        sampled = {pid for pid in pids if part_of(command_line(pid)) == SUITE}

        async def all_have_written() -> bool:
            return all((folder / f"{pid}.json").exists() for pid in sampled)

        await wait_until(all_have_written, timeout_s=SAMPLES_S, interval_s=POLL_S)
        for pid in sampled:
            counts.update(orjson.loads((folder / f"{pid}.json").read_bytes()))


@asynccontextmanager
async def demo_suite(data_dir: Path, *options: str, sampled: bool = False) -> AsyncIterator[DemoSuite]:
    """Runs `onsale up` with these options, `--demo` if there are none, in this directory, which is made."""
    port = free_port()
    data_dir.mkdir()  # noqa: ASYNC240 - nothing else runs yet
    environment = environment_without_ours()
    if sampled:
        environment |= {"PYTHONPATH": str(SAMPLER), "BENCH_SAMPLES": str(data_dir)}
    child = Child.start(
        [sys.executable, "-P", "-m", "onsale", "up", *(options or ("--demo",)), "--port", str(port),
         "--data-dir", str(data_dir)],
        name="onsale up", lock_path=data_dir / "bench.lock", log_path=data_dir / "up.log", stop_signal="INT",
        env=environment,
    )  # fmt: skip
    try:
        await until_ready(child, port, "/readyz")
        yield DemoSuite(child, f"http://{HOST}:{port}", data_dir)
    finally:
        await child.stop()


def _signal_all(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
