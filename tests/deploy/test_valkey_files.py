"""Valkey, started as compose starts it, asks for the password of `onsale keys new`; the replica copies the primary."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis.asyncio

from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, free_port
from onsale.maintenance import new_secrets
from tests.deploy.helm import objects
from tests.deploy.manifests import DEPLOY, compose, pods
from tests.support.engines.engines import fast_directory
from tests.support.running.program import Program
from tests.support.wait import wait_until


@dataclass
class Pair:
    """A primary and its replica: their ports, the password, and the file that has it."""

    ports: list[int]
    auth_file: Path

    @property
    def password(self) -> str:
        url = (self.auth_file.parent / "onsale_redis_url").read_text()
        return urlsplit(url).password or ""

    def client(self, port: int, password: str | None) -> "redis.asyncio.Redis":
        return redis.asyncio.Redis(host=HOST, port=port, password=password, decode_responses=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both, started by the shell command of compose.yaml."""
    [_, _, script] = compose()["services"]["valkey"]["command"]
    with tempfile.TemporaryDirectory(prefix="onsale-valkey-", dir=fast_directory()) as folder:
        new_secrets.new(Path(folder) / "secrets")
        started = Pair([free_port(), free_port()], Path(folder) / "secrets" / "valkey_auth.conf")
        programs = []
        for role, port in zip(("primary", "replica"), started.ports, strict=True):
            home = Path(folder) / role
            home.mkdir()
            own = f"port {port}\nbind {HOST}\ndir {home}\nrepl-diskless-sync-delay 0\n"
            configuration = (DEPLOY / "valkey" / f"{role}.conf").read_text() + own
            (home / "valkey.conf").write_text(
                configuration.replace("replicaof valkey 6379", f"replicaof {HOST} {started.ports[0]}")
            )
            command = script.replace("$$", "$").replace(
                "docker-entrypoint.sh valkey-server", str(find_redis(os.environ))
            )
            command = command.replace("/etc/valkey/valkey.conf", str(home / "valkey.conf"))
            command = command.replace("/run/secrets/valkey_auth.conf", str(started.auth_file))
            programs.append(Program(["sh", "-c", command], home / "log"))
        for program in programs:
            program.start()
        yield started
        for program in programs:
            program.end(signal.SIGKILL)


async def test_a_replica_copies_its_primary_and_neither_evicts_a_key(pair: Pair) -> None:
    primary, replica = (pair.client(port, pair.password) for port in pair.ports)
    async with primary, replica:
        await wait_until(lambda: is_reachable(primary), timeout_s=20)
        await primary.set("key", "first")
        await wait_until(lambda: has_key(replica), timeout_s=20)
        for server in (primary, replica):
            expected = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
            assert await server.config_get(*expected) == expected
        with pytest.raises(redis.ReadOnlyError):
            await replica.set("key", "second")


@pytest.mark.proof
async def test_neither_answers_without_the_password(pair: Pair) -> None:
    for port in pair.ports:
        async with pair.client(port, pair.password) as known, pair.client(port, None) as unknown:
            await wait_until(lambda known=known: is_reachable(known), timeout_s=20)  # type: ignore[misc]
            with pytest.raises(redis.AuthenticationError):
                await unknown.get("key")


@pytest.mark.parametrize("user", ["compose", "chart"])
def test_a_health_check_finds_the_password_in_its_file(user: str, pair: Pair) -> None:
    """The shell part of it: what it gives `valkey-cli` is the password, and a wrong answer is a failure (`-e`)."""
    if user == "compose":
        [_, check] = compose()["services"]["valkey"]["healthcheck"]["test"]
    else:
        [valkey] = [pod for name, pod in pods(objects("small")) if name == "valkey"]
        [_, _, check] = valkey["containers"][0]["readinessProbe"]["exec"]["command"]
    assert check.endswith(" valkey-cli -e ping")
    asked = re.sub(r"/run/secrets/\S*valkey_auth.conf", str(pair.auth_file), check.replace("$$", "$"))
    printed = subprocess.run(
        ["sh", "-c", asked.replace("valkey-cli -e ping", "printenv REDISCLI_AUTH")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert printed.stdout.strip() == pair.password


async def is_reachable(client: "redis.asyncio.Redis") -> bool:
    try:
        return bool(await client.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False


async def has_key(client: "redis.asyncio.Redis") -> bool:
    return await is_reachable(client) and await client.get("key") == "first"
