"""Valkey accepts the configuration in `deploy/valkey`, and the replica copies the primary."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio

from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, free_port
from tests.deploy.manifests import DEPLOY
from tests.support.engines.engines import fast_directory
from tests.support.running.program import Program
from tests.support.wait import wait_until


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """The ports of a primary and of its replica, as compose runs them."""
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="onsale-valkey-", dir=fast_directory()) as folder:
        programs = []
        for role, port in zip(("primary", "replica"), ports, strict=True):
            home = Path(folder) / role
            home.mkdir()
            configuration = (DEPLOY / "valkey" / f"{role}.conf").read_text()
            (home / "valkey.conf").write_text(
                configuration.replace("replicaof valkey 6379", f"replicaof {HOST} {ports[0]}")
            )
            options = ["--port", str(port), "--bind", HOST, "--dir", str(home), "--repl-diskless-sync-delay", "0"]
            programs.append(Program([str(find_redis(os.environ)), str(home / "valkey.conf"), *options], home / "log"))
        for program in programs:
            program.start()
        yield ports
        for program in programs:
            program.end(signal.SIGKILL)


async def test_a_replica_copies_its_primary_and_neither_evicts_a_key(pair: tuple[int, int]) -> None:
    primary, replica = (redis.asyncio.Redis(host=HOST, port=port, decode_responses=True) for port in pair)
    async with primary, replica:
        await wait_until(lambda: is_reachable(primary), timeout_s=20)
        await primary.set("key", "first")
        await wait_until(lambda: has_key(replica), timeout_s=20)
        for server in (primary, replica):
            expected = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
            assert await server.config_get(*expected) == expected
        with pytest.raises(redis.ReadOnlyError):
            await replica.set("key", "second")


async def is_reachable(client: "redis.asyncio.Redis") -> bool:
    try:
        return bool(await client.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False


async def has_key(client: "redis.asyncio.Redis") -> bool:
    return await is_reachable(client) and await client.get("key") == "first"
