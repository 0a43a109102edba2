"""PostgreSQL and Valkey of one data directory, for a laptop and for tests.

A server named in the environment is used as it is. A server started here never outlives the process that started it,
and no two processes open the same data.

Valkey (or Redis) of a data directory: its append-only file, its password, its process. Loopback only.
"""

import asyncio
import fcntl
import os
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, RedisError

from onsale.atomic_file import atomic_write
from onsale.data_dir import Engines, with_driver
from onsale.errors import OperatorError
from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, start_on_free_port
from onsale.local.postgres import EmbeddedPostgres, postgres_answers
from onsale.local.process import Child, RestartedChild
from shared.concurrency.background import to_the_end
from shared.redis.client import connect

READY_WITHIN_S = 60
CONNECT_TIMEOUT_S = 5
CONFIGURATION = """\
bind {host}
port {port}
requirepass {password}
dir {data}
appendonly yes
appendfsync {appendfsync}
save ""
maxmemory-policy noeviction
daemonize no
logfile ""
"""


class EmbeddedValkey:
    """One Valkey below `<data-dir>/engines/valkey`. What was written is on disk within a second."""

    def __init__(self, data_dir: Path, *, env: Mapping[str, str], environ: Mapping[str, str], wait_s: float) -> None:
        self.home = data_dir / "engines" / "valkey"
        self.data = self.home / "data"
        self.password_path = self.home / "password"
        self.configuration_path = self.home / "valkey.conf"
        self.lock_path = data_dir / "engines" / "valkey.lock"
        self.log_path = data_dir / "log" / "valkey.log"
        self.env, self.environ, self.wait_s = env, environ, wait_s

    async def start(self, *, fsync: bool, again_on: int | None = None) -> tuple[Child, str]:
        """Starts it and waits until it answers; the child and its URL. `again_on` is the port it had before."""
        program = find_redis(self.environ)
        for directory in (self.home, self.data):
            directory.mkdir(mode=0o700, exist_ok=True)
        password = self._password()

        def launch(port: int) -> Child:
            self._configure(port=port, password=password, fsync=fsync)
            return Child.start(
                [program, self.configuration_path],
                name="Valkey",
                lock_path=self.lock_path,
                log_path=self.log_path,
                stop_signal="TERM",
                env=self.env,
                wait_s=self.wait_s,
            )

        async def answers(port: int) -> bool:
            return await redis_answers(url(port, password))

        child, port = await start_on_free_port(
            launch, answers, ready_within_s=self.wait_s + READY_WITHIN_S, again_on=again_on
        )
        return child, url(port, password)

    def _password(self) -> str:
        if not self.password_path.exists():
            atomic_write(self.password_path, secrets.token_urlsafe(24))
        return self.password_path.read_text(encoding="ascii")

    def _configure(self, *, port: int, password: str, fsync: bool) -> None:
        """Writes the configuration file. It holds the password: a command line could be read by every user."""
        configuration = CONFIGURATION.format(
            host=HOST, port=port, password=password, data=quoted(self.data), appendfsync="everysec" if fsync else "no"
        )
        atomic_write(self.configuration_path, configuration)


def quoted(path: Path) -> str:
    """A path quoted for the configuration file."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def url(port: int, password: str) -> str:
    """The address, with the password of the default user."""
    return f"redis://:{password}@{HOST}:{port}/0"


async def redis_answers(redis_url: str) -> bool:
    """Whether it answers PING, which it does not while it loads its file."""
    try:
        client = connect(redis_url, timeout_s=CONNECT_TIMEOUT_S)
    except ValueError as problem:
        raise OperatorError(f"This is not the URL of a Redis server: {problem}") from problem
    try:
        return bool(await client.ping())
    except AuthenticationError as problem:
        raise OperatorError(f"Valkey refuses the password: {problem}") from problem
    except (RedisError, OSError):
        return False
    finally:
        await client.aclose()


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
