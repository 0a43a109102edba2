"""The supervisor: a child process never outlives its parent, never shares its lock, and is stopped in order."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from onsale.errors import OperatorError
from onsale.local import supervisor
from onsale.local.process import Child
from tests.support.wait import wait_until

Start = Callable[..., Child]
SLEEPS = "exec sleep 60"
IGNORE = "trap '' INT TERM; "
GOES_ON = "while :; do sleep 0.05; done"


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts shell scripts under one lock; each first sets its `traps` and writes its process id to the file `pid`."""
    children: list[Child] = []

    def start_script(script: str, *, traps: str = "", wait_s: float = 15) -> Child:
        child = start_command(["sh", "-c", writing_pid(tmp_path, script, traps)], tmp_path, wait_s=wait_s)
        children.append(child)
        return child

    yield start_script
    for child in children:
        await child.stop()


def start_command(cmd: list[str], tmp_path: Path, *, wait_s: float = 15) -> Child:
    files = {"lock_path": tmp_path / "lock", "log_path": tmp_path / "log"}
    return Child.start(cmd, name="script", stop_signal="TERM", wait_s=wait_s, env=None, user=None, **files)


def writing_pid(tmp_path: Path, script: str, traps: str = "") -> str:
    return f"{traps}echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; {script}"


async def pid_in(tmp_path: Path) -> int:
    await wait_until((tmp_path / "pid").exists)
    return int((tmp_path / "pid").read_text())


def has_ended(pid: int) -> bool:
    """Whether the process has ended; a zombie counts."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip().startswith("Z") or not state.strip()


async def test_stop_ends_the_child_and_may_be_repeated(start: Start, tmp_path: Path) -> None:
    child = start(SLEEPS)
    pid = await pid_in(tmp_path)
    assert child.returncode is None
    await child.stop()
    await child.stop()
    assert has_ended(pid)
    assert child.returncode == 128 + signal.SIGTERM


async def test_stop_waits_for_the_child_however_often_it_is_cancelled(start: Start, tmp_path: Path) -> None:
    may_end = tmp_path / "may end"
    child = start(GOES_ON, traps=f"trap 'while [ ! -e \"{may_end}\" ]; do sleep 0.05; done; exit 3' TERM; ")
    await pid_in(tmp_path)
    stopping = asyncio.create_task(child.stop())
    for _ in range(2):
        await asyncio.sleep(0.05)
        stopping.cancel()
    await asyncio.sleep(0.05)
    may_end.touch()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert child.returncode == 3


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no descriptors for processes")
async def test_a_child_that_runs_wakes_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start("read line < /dev/null; sleep 0.3; exit 7")
    monkeypatch.setattr(asyncio, "sleep", None)
    assert await child.wait() == 7


async def test_the_childs_exit_code_and_output_are_known(start: Start) -> None:
    child = start("echo out of paper >&2; exit 7")
    assert await child.wait() == 7
    assert child.log_tail() == "out of paper"


async def test_ctrl_c_in_the_terminal_reaches_neither_supervisor_nor_child(start: Start, tmp_path: Path) -> None:
    child = start(SLEEPS)
    sessions = {os.getsid(0), os.getsid(child._supervisor.pid), os.getsid(await pid_in(tmp_path))}
    assert len(sessions) == 3


async def test_two_children_never_run_under_one_lock(start: Start, tmp_path: Path) -> None:
    first = start(SLEEPS)
    pid = await pid_in(tmp_path)
    second = start("echo I ran", wait_s=0.1)
    assert await second.wait() == 2
    assert "is still locked after 0.1 s: an older process has not ended" in second.log_tail()
    third = start("echo I ran")
    await first.stop()
    assert await third.wait() == 0
    assert has_ended(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
async def test_a_killed_supervisor_ends_its_child(start: Start, tmp_path: Path) -> None:
    child = start(SLEEPS)
    pid = await pid_in(tmp_path)
    os.kill(child._supervisor.pid, signal.SIGKILL)
    await wait_until(lambda: has_ended(pid))


async def test_the_lock_is_held_for_as_long_as_the_child_lives(start: Start, tmp_path: Path) -> None:
    child = start(GOES_ON, traps=IGNORE)
    pid = await pid_in(tmp_path)
    try:
        os.kill(child._supervisor.pid, signal.SIGKILL)
        await child.wait()
        with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.killpg(pid, signal.SIGKILL)


async def test_a_child_that_will_not_end_is_killed(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    options = ["--parent-fd", str(read_fd), "--lock", str(tmp_path / "lock"), "--signal", "TERM", "--grace-s", "0.1"]
    cmd = [sys.executable, supervisor.__file__, *options, "--", "sh", "-c", writing_pid(tmp_path, GOES_ON, IGNORE)]
    with subprocess.Popen(cmd, pass_fds=[read_fd]) as process:  # noqa: ASYNC220 - forked in a millisecond
        pid = await pid_in(tmp_path)
        os.close(write_fd)
        os.close(read_fd)
        assert process.wait(timeout=5) == 128 + signal.SIGKILL
    assert has_ended(pid)


async def test_a_supervisor_whose_parent_ends_while_it_waits_for_the_lock_starts_no_child(
    start: Start, tmp_path: Path
) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = start("echo I ran")
        await child.stop()
    assert child.returncode == 0
    assert not (tmp_path / "pid").exists()


async def test_a_command_that_does_not_exist_is_reported_in_the_log(tmp_path: Path) -> None:
    child = start_command(["/nowhere/server"], tmp_path)
    assert await child.wait() == 2
    assert child.log_tail().startswith("/nowhere/server could not be started")
    await child.stop()


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(OperatorError, match="script could not be started"):
        start_command(["true"], tmp_path)


async def test_a_log_over_its_limit_is_rotated(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onsale.local.process.LOG_BYTES_KEPT", 10)
    (tmp_path / "log").write_text("twelve bytes")
    child = start("echo new line")
    await child.wait()
    assert child.log_tail() == "new line"
    assert (tmp_path / "log.old").read_text() == "twelve bytes"
