"""The embedded engines: PostgreSQL and Valkey below one data directory, for a laptop and for tests.

An address in the environment wins, and then nothing is started. A started engine never outlives the process that
started it, and no two processes ever open the same data.
"""

import asyncio
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from onsale.local.postgres import EmbeddedPostgres, postgres_answers, with_driver
from onsale.local.process import Child, EngineTrouble
from onsale.local.secret_file import write_secret
from onsale.local.valkey import EmbeddedValkey, redis_answers

__all__ = [
    "Child",
    "EngineTrouble",
    "Engines",
    "InUse",
    "RunningEngines",
    "read_engines_file",
    "start_engines",
    "with_driver",
    "write_engines_file",
]

ENGINES_FILE = "engines.json"
LOOK_S, STEADY_S, ENDS_MAX = 0.25, 60.0, 20
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
Say = Callable[[str], None]
Start = Callable[[], Awaitable[tuple[Child, str]]]
PASSED_ON = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class InUse(EngineTrouble):
    """A suite runs on this data directory."""


@dataclass(frozen=True)
class Engines:
    """Where the engines are. `postgres_url` names SQLAlchemy's asyncpg driver."""

    postgres_url: str
    redis_url: str
    sandbox_url: str | None = None


@dataclass
class Kept:
    """An engine of our own: its process, and how another is started on the same port and data."""

    child: Child
    again: Start

    async def keep(self, say: Say) -> None:
        """For ever: starts the engine again when it has ended by itself. Raises `EngineTrouble` once it has done so, or
        has not come up, so many times in a row that a person must look.
        """
        ends, up_s = 0, time.monotonic()
        while True:
            while self.child.returncode is None:  # noqa: ASYNC110 - only a poll works in any loop
                await asyncio.sleep(LOOK_S)
            ends = 1 if time.monotonic() - up_s > STEADY_S else ends + 1
            if ends > ENDS_MAX:
                raise EngineTrouble(f"{self.ended()}. It was started again {ENDS_MAX} times.")
            say(f"{self.ended()}. Starting it again …")
            await self.child.stop()  # its keeper is gone as well; its pipe is closed
            await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** (ends - 1)))
            with suppress(EngineTrouble, OSError):  # the log has its words, which are said in the next round
                self.child, _ = await self.again()
            up_s = time.monotonic()

    def ended(self) -> str:
        """One line about an engine that has ended."""
        return f"{self.child.name} has ended: {self.child.last_words()} (more in {self.child.log_path})"


@dataclass
class RunningEngines:
    """The engines' addresses and those of our own behind them (none for an engine that was already running)."""

    engines: Engines
    kept: list[Kept]
    _lock_fd: int

    @property
    def children(self) -> list[Child]:
        """The processes as they are now."""
        return [engine.child for engine in self.kept]

    async def keep(self, say: Say) -> None:
        """For ever: starts engines again that have ended by themselves. Raises `EngineTrouble` when that is no use."""
        tasks = [asyncio.create_task(engine.keep(say)) for engine in self.kept]
        try:
            await asyncio.gather(asyncio.Event().wait(), *tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """End the engines, in any order, and give the data directory free. Harmless when repeated."""
        await asyncio.gather(*(child.stop() for child in self.children))
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


async def start_engines(
    data_dir: Path, *, fsync: bool = True, wait_s: float = 15, environ: Mapping[str, str] | None = None
) -> RunningEngines:
    """Both engines, answering. Waits up to `wait_s` for those of a killed predecessor to go.

    `fsync=False` is for tests: nothing is forced to disk. Raises `EngineTrouble` and leaves nothing running.
    """
    environ = os.environ if environ is None else environ
    try:
        data_dir, lock_fd = _open_data_dir(data_dir)
    except OSError as problem:
        raise EngineTrouble(f"The data directory {data_dir} cannot be used: {problem}") from problem
    env = {name: environ[name] for name in PASSED_ON if name in environ} | {"LC_ALL": "C"}
    postgres = EmbeddedPostgres(data_dir, env=env, environ=environ, wait_s=wait_s)
    valkey = EmbeddedValkey(data_dir, env=env, environ=environ, wait_s=wait_s)
    tasks = (
        asyncio.ensure_future(
            _running_or("ONSALE_POSTGRES_URL", environ, postgres_answers, postgres.start, fsync=fsync)
        ),
        asyncio.ensure_future(_running_or("ONSALE_REDIS_URL", environ, redis_answers, valkey.start, fsync=fsync)),
    )
    try:
        answers = await asyncio.gather(*tasks)
    except BaseException as problem:
        await _undo(tasks)
        os.close(lock_fd)
        if isinstance(problem, OSError | subprocess.SubprocessError):
            raise EngineTrouble(f"The engines in {data_dir} cannot be started: {problem}") from problem
        raise
    (_, postgres_url), (_, redis_url) = answers
    return RunningEngines(
        engines=Engines(postgres_url=with_driver(postgres_url, "asyncpg"), redis_url=redis_url),
        kept=[
            Kept(child, partial(start, fsync=fsync, again_on=urlsplit(url).port))
            for start, (child, url) in zip((postgres.start, valkey.start), answers, strict=True)
            if child
        ],
        _lock_fd=lock_fd,
    )


async def _running_or(
    variable: str,
    environ: Mapping[str, str],
    answers: Callable[[str], Awaitable[bool]],
    start: Callable[..., Awaitable[tuple[Child, str]]],
    *,
    fsync: bool,
) -> tuple[Child | None, str]:
    """The engine the environment names, if it answers; otherwise one of our own."""
    if not (url := environ.get(variable)):
        return await start(fsync=fsync)
    try:
        if await answers(url):
            return None, url
    except (OSError, ValueError, EngineTrouble) as problem:
        raise EngineTrouble(f"{variable} is set, but cannot be used: {problem}") from problem
    raise EngineTrouble(f"{variable} is set, but no engine answers there")


async def _undo(tasks: Sequence["asyncio.Future[tuple[Child | None, str]]"]) -> None:
    """Stop what one engine's start had reached when the other's failed."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(outcome, BaseException) and outcome[0]:
            await outcome[0].stop()


def _open_data_dir(data_dir: Path) -> tuple[Path, int]:
    """Make the directories and lock the whole for this process; its absolute path and the lock's descriptor."""
    data_dir = data_dir.absolute()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for room in ("engines", "log"):
        (data_dir / room).mkdir(mode=0o700, exist_ok=True)
    lock_fd = os.open(data_dir / "engines" / "in-use.lock", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(lock_fd)
        raise InUse(f"{data_dir} is in use: another `onsale up` runs on it") from problem
    return data_dir, lock_fd


def write_engines_file(data_dir: Path, engines: Engines, sandbox_url: str | None, *, url: str | None = None) -> None:
    """Tell `psql`, `redis-cli` and scripts where things run: `<data-dir>/engines.json`, for its owner only."""
    places = {
        "postgres_url": with_driver(engines.postgres_url),
        "redis_url": engines.redis_url,
        "sandbox_url": sandbox_url,
        "url": url,
    }
    write_secret(data_dir / ENGINES_FILE, json.dumps(places, indent=2) + "\n")


def read_engines_file(data_dir: Path) -> Engines:
    """Where the last `onsale up` on this data directory runs, or ran."""
    path = data_dir / ENGINES_FILE
    try:
        places = json.loads(path.read_text(encoding="utf-8"))
        return Engines(
            postgres_url=with_driver(places["postgres_url"], "asyncpg"),
            redis_url=places["redis_url"],
            sandbox_url=places["sandbox_url"],
        )
    except FileNotFoundError as problem:
        raise EngineTrouble(f"Nothing has run in {data_dir} yet: there is no {ENGINES_FILE}") from problem
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise EngineTrouble(f"{path} cannot be read: {problem}") from problem


def suite_url(data_dir: Path) -> str:
    """Where the suite on this data directory answers, or last answered; port 8000 if none ever ran here."""
    path = data_dir / ENGINES_FILE
    known = json.loads(path.read_text()).get("url") if path.exists() else None
    return known or "http://localhost:8000"
