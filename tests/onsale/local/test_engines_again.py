"""An engine of our own that dies is started again, on its port and its data, and the sale goes on."""

import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis.asyncio

from onsale.errors import OperatorError
from onsale.local import engines as engines_room
from onsale.local.engines import OwnServer
from onsale.local.process import Child
from tests.support.engines.engines import fast_place
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

JOIN = "/events/{}/queue"
GOES_ON_WITHIN_S = 20.0  # a machine that is busy; alone it is two or three


@pytest.fixture
def suite() -> Iterator[RunningSuite]:
    with tempfile.TemporaryDirectory(prefix="onsale-again-", dir=fast_place()) as directory:
        Path(directory).chmod(0o755)
        running = RunningSuite(Path(directory) / "data").start()
        try:
            yield running.wait_until_ready()
        finally:
            running.stop()


async def valkey_pid(suite: RunningSuite) -> int:
    async with redis.asyncio.Redis.from_url(suite.engines["redis_url"]) as client:
        return int((await client.info("server"))["process_id"])


async def postgres_pid(suite: RunningSuite) -> int:
    return int((suite.data_dir / "engines/postgres/data/postmaster.pid").read_text().split()[0])


async def test_a_fan_goes_on_after_each_engine_was_killed(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as fan:
        for kills, pid_of in enumerate((valkey_pid, postgres_pid), 1):
            assert await joins(fan, event_id)
            killed = await pid_of(suite)
            os.kill(killed, signal.SIGKILL)
            await wait_until(partial(has_said, suite, "Starting it again", kills))
            await wait_until(lambda: joins(fan, event_id), timeout_s=GOES_ON_WITHIN_S, interval_s=0.1)
            await wait_until(lambda: clean(suite, event_id), timeout_s=GOES_ON_WITHIN_S, interval_s=0.2)
            assert await pid_of(suite) != killed
    assert suite.process is not None
    assert suite.process.poll() is None


def has_said(suite: RunningSuite, words: str, times: int) -> bool:
    return suite.log_text().count(words) == times


async def clean(suite: RunningSuite, event_id: str) -> bool:
    try:
        return await suite.is_clean(event_id)
    except OperatorError:
        return False  # a service has not found the engine again


async def joins(fan: httpx.AsyncClient, event_id: str) -> bool:
    """Whether somebody new gets a place."""
    try:
        answer = await fan.post(JOIN.format(event_id), headers={"Idempotency-Key": uuid.uuid4().hex}, timeout=2)
    except httpx.HTTPError:
        return False
    return answer.is_success


async def test_an_engine_that_ends_again_and_again_is_given_up_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines_room, "ENDS_MAX", 2)
    monkeypatch.setattr(engines_room, "POLL_S", 0.01)
    started: list[Child] = []

    async def again() -> tuple[Child, str]:
        started.append(
            Child.start(
                ["sh", "-c", "echo no space left; exit 1"], name="Valkey", lock_path=tmp_path / "lock",
                log_path=tmp_path / "log", stop_signal="TERM",
            )
        )  # fmt: skip
        return started[-1], ""

    said: list[str] = []
    begun_s = time.monotonic()
    with pytest.raises(OperatorError, match=r"Valkey has ended: .*no space left.* started again 2 times"):
        await OwnServer((await again())[0], again).restart_when_ended(said.append)
    assert len(started) == 3
    assert [line.endswith("Starting it again …") for line in said] == [True, True]
    assert time.monotonic() - begun_s < engines_room.STEADY_S
