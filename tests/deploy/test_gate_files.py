"""The engine's files in `deploy/valkey` are taken by a real engine, and the replica has what the primary was told."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio

from onsale.local.binaries import find_redis
from onsale.local.ports import free_port
from tests.deploy.manifests import DEPLOY
from tests.drills.fleet import HOST, Program
from tests.support.engines.engines import fast_place
from tests.support.wait import wait_until


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """The ports of a primary and of its replica, as compose runs them."""
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="onsale-gate-", dir=fast_place()) as folder:
        programs = []
        for role, port in zip(("primary", "replica"), ports, strict=True):
            home = Path(folder) / role
            home.mkdir()
            told = (DEPLOY / "valkey" / f"{role}.conf").read_text()
            (home / "valkey.conf").write_text(told.replace("replicaof valkey 6379", f"replicaof {HOST} {ports[0]}"))
            options = ["--port", str(port), "--bind", HOST, "--dir", str(home), "--repl-diskless-sync-delay", "0"]
            programs.append(Program([str(find_redis(os.environ)), str(home / "valkey.conf"), *options], home / "log"))
        for program in programs:
            program.start()
        yield ports
        for program in programs:
            program.end(signal.SIGKILL)


async def test_a_replica_follows_and_nothing_is_forgotten(pair: tuple[int, int]) -> None:
    primary, replica = (redis.asyncio.Redis(host=HOST, port=port, decode_responses=True) for port in pair)
    async with primary, replica:
        await wait_until(lambda: answers(primary), timeout_s=20)
        await primary.set("told", "once")
        await wait_until(lambda: has(replica), timeout_s=20)
        for engine in (primary, replica):
            wanted = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
            assert await engine.config_get(*wanted) == wanted
        with pytest.raises(redis.ReadOnlyError):
            await replica.set("told", "twice")


async def answers(engine: "redis.asyncio.Redis") -> bool:
    try:
        return bool(await engine.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False


async def has(engine: "redis.asyncio.Redis") -> bool:
    return await answers(engine) and await engine.get("told") == "once"
