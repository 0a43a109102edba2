"""Valkey (or Redis) of a data directory: its append-only file, its password, its process. Loopback only."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from redis.exceptions import AuthenticationError, RedisError

from onsale.atomic_file import atomic_write
from onsale.errors import OperatorError
from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, start_on_free_port
from onsale.local.process import Child
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
