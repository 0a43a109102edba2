"""PostgreSQL of a data directory: its files, its password, its process. Loopback TCP only, no Unix socket.

PostgreSQL refuses to run as root. Started by root it runs in a user namespace or, where those are forbidden, as the
user `nobody`.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from onsale.atomic_file import atomic_write
from onsale.data_dir import with_driver
from onsale.errors import OperatorError
from onsale.local.binaries import PostgresBinaries, find_postgres
from onsale.local.ports import HOST, start_on_free_port
from onsale.local.process import Child

DATABASE = USER = "onsale"
READY_WITHIN_S = 60
CONNECT_TIMEOUT_S = 5
NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # a socket's path may have only 107 bytes, and none is needed
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
UNSAFE_BUT_FAST = {
    "fsync": "off", "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",  # in the data directory: a server that a test kills leaves nothing elsewhere
}  # fmt: skip


@dataclass(frozen=True)
class RunAs:
    """A prefix of the command, or the user (user id, group id) that runs it."""

    prefix: tuple[str, ...] = ()
    user: tuple[int, int] | None = None


class EmbeddedPostgres:
    """One PostgreSQL below `<data-dir>/engines/postgres`, with the database `onsale` and a user of that name."""

    def __init__(self, data_dir: Path, *, env: Mapping[str, str], environ: Mapping[str, str], wait_s: float) -> None:
        self.home = data_dir / "engines" / "postgres"
        self.cluster = self.home / "data"
        self.password_path = self.home / "password"
        self.lock_path = data_dir / "engines" / "postgres.lock"
        self.log_path = data_dir / "log" / "postgres.log"
        self.env, self.environ, self.wait_s = env, environ, wait_s

    async def start(self, *, fsync: bool, again_on: int | None = None) -> tuple[Child, str]:
        """Creates the cluster if there is none, starts it and waits until it answers; the child and its plain URL.

        `again_on` is the port it had before.
        """
        binaries = find_postgres(self.environ, major=self._written_by())
        run_as = choose_run_as(self.cluster)
        self._prepare_home(run_as)
        if not self.cluster.exists():
            await self._initdb(binaries, run_as, fsync=fsync)
        password = self._password()
        settings = SETTINGS | ({} if fsync else UNSAFE_BUT_FAST)

        def launch(port: int) -> Child:
            chosen = [f"--{name}={value}" for name, value in settings.items()]
            cmd: list[str | Path] = [binaries.directory / "postgres", "-D", self.cluster, f"--port={port}", *chosen]
            return self._child(cmd, name="PostgreSQL", run_as=run_as)

        async def answers(port: int) -> bool:
            return await postgres_answers(url(port, password, "postgres"), make=DATABASE)

        child, port = await start_on_free_port(
            launch, answers, ready_within_s=self.wait_s + READY_WITHIN_S, again_on=again_on
        )
        return child, url(port, password, DATABASE)

    def _written_by(self) -> int | None:
        """The major version that wrote the cluster; None when there is none yet."""
        if not self.cluster.exists():
            return None
        try:
            return int((self.cluster / "PG_VERSION").read_text(encoding="ascii"))
        except (OSError, ValueError) as problem:
            raise OperatorError(
                f"{self.cluster} is not a PostgreSQL data directory (PG_VERSION: {problem})"
            ) from problem

    def _prepare_home(self, run_as: RunAs) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        if run_as.user is not None:
            os.chown(self.home, *run_as.user)
            for parent in (self.home.parent, self.home.parent.parent):
                parent.chmod(0o711)  # that user must be able to pass through; the files there have modes of their own

    def _password(self) -> str:
        try:
            return self.password_path.read_text(encoding="ascii")
        except OSError as problem:
            raise OperatorError(f"The password of PostgreSQL cannot be read: {problem}") from problem

    async def _initdb(self, binaries: PostgresBinaries, run_as: RunAs, *, fsync: bool) -> None:
        """Creates the cluster in a temporary folder and moves it when complete: a partial one is never opened."""
        new = Path(tempfile.mkdtemp(prefix="new-", dir=self.home))
        atomic_write(self.password_path, secrets.token_urlsafe(24))
        if run_as.user is not None:
            os.chown(new, *run_as.user)
            os.chown(self.password_path, *run_as.user)
        cmd = initdb_command(binaries, new, self.password_path, fsync=fsync)
        child = self._child(cmd, name="initdb", run_as=run_as)
        try:
            if await child.wait() != 0:
                raise OperatorError(f"{self.cluster} could not be created: {child.log_excerpt()}")
        finally:
            await child.stop()
        self._put_in_place(new)

    def _put_in_place(self, new: Path) -> None:
        new.rename(self.cluster)
        for left_over in self.home.glob("new-*"):  # of a process that was killed in between
            shutil.rmtree(left_over)

    def _child(self, cmd: Sequence[str | Path], *, name: str, run_as: RunAs) -> Child:
        return Child.start(
            [*run_as.prefix, *cmd],
            name=name,
            lock_path=self.lock_path,
            log_path=self.log_path,
            stop_signal="INT",
            env=self.env,
            wait_s=self.wait_s,
            user=run_as.user,
        )


def initdb_command(binaries: PostgresBinaries, cluster: Path, password_path: Path, *, fsync: bool) -> list[str]:
    """The command of initdb: text sorts by code point whatever the machine's locale is, alike in every installation."""
    builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if binaries.major >= 17 else []
    return [
        *(str(binaries.directory / "initdb"), "-D", str(cluster), "-U", USER, f"--pwfile={password_path}"),
        *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", *builtin),
        *([] if fsync else ["--no-sync"]),
    ]


def choose_run_as(cluster: Path) -> RunAs:
    """The present user, unless that is root. A cluster that belongs to another user is run by that user."""
    if os.geteuid() != 0:
        return RunAs()
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return RunAs(user=(owner.st_uid, owner.st_gid))
    if namespaces_work() or cluster.exists():
        return RunAs(prefix=NAMESPACE)
    nobody = pwd.getpwnam("nobody")
    return RunAs(user=(nobody.pw_uid, nobody.pw_gid))


def namespaces_work() -> bool:
    """Whether this machine allows a user namespace."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)  # noqa: S603 - a constant
    return probe.returncode == 0


def url(port: int, password: str, database: str) -> str:
    """The plain address, as psql and asyncpg read it."""
    return f"postgresql://{USER}:{password}@{HOST}:{port}/{database}"


async def postgres_answers(server_url: str, *, make: str | None = None) -> bool:
    """Whether the server answers. If it does, the database `make` exists afterwards."""
    try:
        connection = await asyncpg.connect(with_driver(server_url), timeout=CONNECT_TIMEOUT_S)
    except (ConnectionError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError):
        return False
    except (asyncpg.PostgresError, ValueError) as problem:
        raise OperatorError(f"PostgreSQL refuses the connection: {problem}") from problem
    try:
        if make and not await connection.fetchval("select 1 from pg_database where datname = $1", make):
            await connection.execute(f'create database "{make}"')
    finally:
        await connection.close()
    return True
