"""PostgreSQL and Valkey of one data directory, for a laptop and for tests.

A server named in the environment is used as it is. A server started here never outlives the process that started it,
and no two processes open the same data.
"""

import asyncio
import fcntl
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from onsale.data_dir import Engines, with_driver
from onsale.errors import OperatorError
from onsale.local.postgres import EmbeddedPostgres, postgres_answers
from onsale.local.process import Child, RestartedChild
from onsale.local.valkey import EmbeddedValkey, redis_answers
from shared.concurrency.tasks import to_the_end

__all__ = [
    "Child",
    "DataDirInUse",
    "Engines",
    "OperatorError",
    "RunningDatabases",
    "start_databases",
    "with_driver",
]

ENDS_MAX = 20
Start = Callable[..., Awaitable[tuple[Child, str]]]
PASSED_ON = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class DataDirInUse(OperatorError):
    """A suite already runs on this data directory."""


@dataclass
class RunningDatabases:
    """The servers' addresses, and the servers started here (none for those named in the environment)."""

    addresses: Engines
    own_servers: list[RestartedChild]
    _lock_fd: int

    @property
    def children(self) -> list[Child]:
        """The processes of the servers started here."""
        return [server.child for server in self.own_servers]

    async def stop(self) -> None:
        """Stops the servers and releases the data directory. May be repeated."""
        await asyncio.gather(*(child.stop() for child in self.children))
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


async def start_databases(
    data_dir: Path, *, fsync: bool = True, wait_s: float = 15, environ: Mapping[str, str] | None = None,
    locked: tuple[Path, int] | None = None,
) -> RunningDatabases:  # fmt: skip
    """Starts PostgreSQL and Valkey and waits until both answer, up to `wait_s` of it for those of a killed predecessor.

    `fsync=False` is for tests: nothing is forced to disk. `locked` is what `lock_data_dir` answered, if the caller has
    called it; the lock is released with the databases. On `OperatorError` nothing is left running.
    """
    environ = os.environ if environ is None else environ
    data_dir, lock_fd = locked or lock_data_dir(data_dir)
    env = {name: environ[name] for name in PASSED_ON if name in environ} | {"LC_ALL": "C"}
    postgres = EmbeddedPostgres(data_dir, env=env, environ=environ, wait_s=wait_s)
    valkey = EmbeddedValkey(data_dir, env=env, environ=environ, wait_s=wait_s)
    tasks = [
        asyncio.ensure_future(_given_or_started(variable, environ, answers, start, fsync=fsync))
        for variable, answers, start in (
            ("ONSALE_POSTGRES_URL", postgres_answers, postgres.start),
            ("ONSALE_REDIS_URL", redis_answers, valkey.start),
        )
    ]
    try:
        answers = await asyncio.gather(*tasks)
    except BaseException as problem:
        try:
            await to_the_end(_undo(tasks))
        finally:
            os.close(lock_fd)
        if isinstance(problem, OSError | subprocess.SubprocessError):
            raise OperatorError(f"PostgreSQL and Valkey in {data_dir} cannot be started: {problem}") from problem
        raise
    (_, postgres_url), (_, redis_url) = answers
    return RunningDatabases(
        addresses=Engines(postgres_url=with_driver(postgres_url, "asyncpg"), redis_url=redis_url),
        own_servers=[
            RestartedChild(child, partial(_restart, start, fsync=fsync, again_on=urlsplit(url).port), ENDS_MAX)
            for start, (child, url) in zip((postgres.start, valkey.start), answers, strict=True)
            if child
        ],
        _lock_fd=lock_fd,
    )


async def _restart(start: Start, *, fsync: bool, again_on: int | None) -> Child:
    """The server, on the same port and data."""
    child, _ = await start(fsync=fsync, again_on=again_on)
    return child


async def _given_or_started(
    variable: str, environ: Mapping[str, str], answers: Callable[[str], Awaitable[bool]], start: Start, *, fsync: bool
) -> tuple[Child | None, str]:
    """The server that the environment names, if it answers; otherwise one started here."""
    if not (url := environ.get(variable)):
        return await start(fsync=fsync)
    try:
        if await answers(url):
            return None, url
    except (OSError, ValueError, OperatorError) as problem:
        raise OperatorError(f"{variable} is set, but cannot be used: {problem}") from problem
    raise OperatorError(f"{variable} is set, but no server answers there")


async def _undo(tasks: Sequence["asyncio.Future[tuple[Child | None, str]]"]) -> None:
    """Stops the server that has started when the other one failed."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(outcome, BaseException) and outcome[0]:
            await outcome[0].stop()


def lock_data_dir(data_dir: Path) -> tuple[Path, int]:
    """Creates the directories and locks the data directory for this process; its path and the lock's descriptor.

    Raises `OperatorError`, and `DataDirInUse` when a suite runs on it.
    """
    data_dir = data_dir.absolute()
    try:
        return data_dir, _lock(data_dir)
    except OSError as problem:
        raise OperatorError(f"The data directory {data_dir} cannot be used: {problem}") from problem


def _lock(data_dir: Path) -> int:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("engines", "log"):
        (data_dir / name).mkdir(mode=0o700, exist_ok=True)
    lock_fd = os.open(data_dir / "engines" / "in-use.lock", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(lock_fd)
        raise DataDirInUse(f"{data_dir} is in use: another `onsale up` runs on it") from problem
    return lock_fd
