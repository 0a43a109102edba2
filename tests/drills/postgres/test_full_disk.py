"""The disk is full in the middle of a sale and has space again: engines and services go on, the audit is clean."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from onsale.errors import OperatorError
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

DISK_BYTES, FULL_FOR_S, CLEAN_WITHIN_S = 400_000_000, 8.0, 60.0
MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system of its own."""
    if MOUNT is None or UNMOUNT is None or os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    with tempfile.TemporaryDirectory(prefix="onsale-disk-") as directory:
        made = subprocess.run(
            [MOUNT, "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", directory], check=False
        )
        if made.returncode != 0:
            pytest.skip("this machine lets nobody mount")
        try:
            yield Path(directory)
        finally:
            subprocess.run([UNMOUNT, "-l", directory], check=True)


@pytest.fixture
def suite(disk: Path) -> Iterator[RunningSuite]:
    running = RunningSuite(disk / "data").start()
    try:
        yield running.wait_until_ready()
    finally:
        running.stop()


def fill(disk: Path) -> Path:
    """Leaves no block free."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    return ballast


async def visit(suite: RunningSuite, fan: httpx.AsyncClient, event_id: str, told: list[str]) -> None:
    """One fan after the other joins, claims and leaves, whatever is answered."""
    while True:
        try:
            path = f"/events/{event_id}/queue"
            joined = await fan.post(path, headers={"Idempotency-Key": uuid.uuid4().hex}, timeout=5)
            if joined.is_success:
                token = {"authorization": f"Bearer {joined.json()['queue_token']}"}
                claimed = await fan.post(f"{path}/pass", headers=token, timeout=5)
                left = await fan.delete(path, headers=token, timeout=5)
                told.append(
                    "done" if claimed.is_success and left.is_success else f"{claimed.status_code}, {left.status_code}"
                )
            else:
                told.append(str(joined.status_code))
                await asyncio.sleep(0.05)
        except httpx.HTTPError as lost:
            told.append(type(lost).__name__)


async def clean(suite: RunningSuite, event_id: str) -> bool:
    try:
        return await suite.is_clean(event_id)
    except (OperatorError, httpx.HTTPError):
        return False


@pytest.mark.drill
async def test_after_a_full_disk_the_line_is_clean_within_a_minute(suite: RunningSuite, disk: Path) -> None:
    event_id = await suite.open_event(room={"max_active": 20, "claim_window_s": 20})
    told: list[str] = []
    async with suite.browser() as fan, asyncio.TaskGroup() as group:
        fans = [group.create_task(visit(suite, fan, event_id, told)) for _ in range(8)]
        await wait_until(lambda: len(told) > 100, timeout_s=30)
        ballast = await asyncio.to_thread(fill, disk)
        before = len(told)
        await asyncio.sleep(FULL_FOR_S)
        assert set(told[before:]) != {"done"}, "nothing was refused: the disk was not full"
        ballast.unlink()
        before = len(told)
        await wait_until(lambda: told[before:].count("done") > 20, timeout_s=CLEAN_WITHIN_S)
        for task in fans:
            task.cancel()
    await wait_until(lambda: clean(suite, event_id), timeout_s=CLEAN_WITHIN_S, interval_s=0.5)
