"""`onsale up` restarts its PostgreSQL or Valkey after it died, on the same port and data, and sales continue."""

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
from onsale.local import process
from onsale.local.process import Child, RestartedChild
from tests.support.engines.engines import fast_directory
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

JOIN = "/events/{}/queue"
RECOVERS_WITHIN_S = 20.0  # on a busy machine; two or three on an idle one


@pytest.fixture
def suite() -> Iterator[RunningSuite]:
    with tempfile.TemporaryDirectory(prefix="onsale-again-", dir=fast_directory()) as directory:
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


async def test_a_fan_can_join_again_after_valkey_or_postgres_was_killed(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as fan:
        for kills, pid_of in enumerate((valkey_pid, postgres_pid), 1):
            assert await can_join(fan, event_id)
            killed = await pid_of(suite)
            os.kill(killed, signal.SIGKILL)
            await wait_until(partial(log_has, suite, "Starting it again", kills))
            await wait_until(lambda: can_join(fan, event_id), timeout_s=RECOVERS_WITHIN_S, interval_s=0.1)
            await wait_until(lambda: is_clean(suite, event_id), timeout_s=RECOVERS_WITHIN_S, interval_s=0.2)
            assert await pid_of(suite) != killed
    assert suite.program.is_running


def log_has(suite: RunningSuite, text: str, times: int) -> bool:
    return suite.log_text().count(text) == times


async def is_clean(suite: RunningSuite, event_id: str) -> bool:
    try:
        return await suite.is_clean(event_id)
    except OperatorError:
        return False  # a service has not reconnected yet


async def can_join(fan: httpx.AsyncClient, event_id: str) -> bool:
    """Whether a new fan gets a place."""
    try:
        answer = await fan.post(JOIN.format(event_id), headers={"Idempotency-Key": uuid.uuid4().hex}, timeout=2)
    except httpx.HTTPError:
        return False
    return answer.is_success


async def test_a_server_that_ends_again_and_again_is_given_up_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Child] = []

    async def start() -> Child:
        started.append(
            Child.start(
                ["sh", "-c", "echo no space left; exit 1"], name="Valkey", lock_path=tmp_path / "lock",
                log_path=tmp_path / "log", stop_signal="TERM",
            )
        )  # fmt: skip
        return started[-1]

    reports: list[str] = []
    began_s = time.monotonic()
    with pytest.raises(OperatorError, match=r"Valkey has ended: .*no space left.* started again 2 times"):
        await RestartedChild(await start(), start, ends_max=2).run(reports.append)
    assert len(started) == 3
    assert [line.endswith("Starting it again …") for line in reports] == [True, True]
    assert time.monotonic() - began_s < process.STEADY_S
