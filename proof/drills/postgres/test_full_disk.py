"""The disk is full during a sale and then has space again: databases and services recover, and the audit is clean.

Faults of the PostgreSQL server that services use: their connections are ended, or none is left for them.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import httpx
import pytest

from onsale.errors import OperatorError
from onsale.history.transport import History
from onsale.local.engines import with_driver
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

DISK_BYTES, FULL_FOR_S, CLEAN_WITHIN_S = 400_000_000, 8.0, 60.0
MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system."""
    if MOUNT is None or UNMOUNT is None or os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    with tempfile.TemporaryDirectory(prefix="onsale-disk-") as directory:
        mounted = subprocess.run(
            [MOUNT, "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", directory], check=False
        )
        if mounted.returncode != 0:
            pytest.skip("this machine does not allow mounting")
        try:
            yield Path(directory)
        finally:
            subprocess.run([UNMOUNT, "-l", directory], check=True)


@pytest.fixture
def suite(disk: Path, tmp_path: Path) -> Iterator[RunningSuite]:
    """Its data and its log are on the small disk; what its fans were told is not."""
    running = RunningSuite(disk / "data").start()
    running.history = History(tmp_path / "history.jsonl")
    try:
        yield running.wait_until_ready()
    finally:
        running.stop()


def fill_disk(disk: Path) -> Path:
    """Writes a file until no block is free; the file."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    return ballast


async def join_claim_and_leave(
    suite: RunningSuite, browser: httpx.AsyncClient, event_id: str, results: list[str]
) -> None:
    """Lets one fan after the other join, claim and leave, and notes each result in `results`."""
    while True:
        try:
            path = f"/events/{event_id}/queue"
            joined = await browser.post(path, headers={"Idempotency-Key": uuid.uuid4().hex}, timeout=5)
            if joined.is_success:
                token = {"authorization": f"Bearer {joined.json()['queue_token']}"}
                claimed = await browser.post(f"{path}/pass", headers=token, timeout=5)
                left = await browser.delete(path, headers=token, timeout=5)
                results.append(
                    "done" if claimed.is_success and left.is_success else f"{claimed.status_code}, {left.status_code}"
                )
            else:
                results.append(str(joined.status_code))
                await asyncio.sleep(0.05)
        except httpx.HTTPError as failed:
            results.append(type(failed).__name__)


async def is_clean(suite: RunningSuite, event_id: str) -> bool:
    try:
        return await suite.is_clean(event_id)
    except (OperatorError, httpx.HTTPError):
        return False


async def test_within_a_minute_after_a_full_disk_fans_are_served_and_the_audit_is_clean(
    suite: RunningSuite, disk: Path
) -> None:
    event_id = await suite.open_event(room={"max_active": 20, "claim_window_s": 20})
    results: list[str] = []
    async with suite.browser() as browser, asyncio.TaskGroup() as group:
        fans = [group.create_task(join_claim_and_leave(suite, browser, event_id, results)) for _ in range(8)]
        await wait_until(lambda: len(results) > 100, timeout_s=30)
        ballast = await asyncio.to_thread(fill_disk, disk)
        before = len(results)
        await asyncio.sleep(FULL_FOR_S)
        assert set(results[before:]) != {"done"}, "no request failed: the disk was not full"
        ballast.unlink()
        before = len(results)
        await wait_until(lambda: results[before:].count("done") > 20, timeout_s=CLEAN_WITHIN_S)
        for task in fans:
            task.cancel()
    await wait_until(lambda: is_clean(suite, event_id), timeout_s=CLEAN_WITHIN_S, interval_s=0.5)


END_CONNECTIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onsale-%'"


async def take_all_connections(url: str, stack: AsyncExitStack) -> None:
    """Takes every connection the server has, those of the services included; closing `stack` returns them."""
    taken: list[asyncpg.Connection] = []
    while True:
        try:
            taken.append(await asyncpg.connect(with_driver(url)))
        except asyncpg.TooManyConnectionsError:
            if not await taken[0].fetch(END_CONNECTIONS):
                return
        else:
            stack.push_async_callback(taken[-1].close)
