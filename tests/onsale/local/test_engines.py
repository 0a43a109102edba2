"""The embedded engines: what they keep, how they end, and what a person is told when they cannot start."""

# ruff: noqa: ASYNC240 - a test may look at a file

import asyncio
import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from onsale.local import binaries, postgres
from onsale.local.engines import (
    Engines,
    OperatorError,
    RunningDatabases,
    read_engines_file,
    start_databases,
    with_driver,
    write_engines_file,
)
from tests.support.engines.engines import fast_place, run_apart

ROOT = Path(__file__).parents[3]
OURS = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
AS_ROOT = os.geteuid() == 0
STARTER = """
import asyncio, email.parser, encodings.ascii, encodings.idna, os, sys  # all of it before we may read no more of it
from pathlib import Path
from onsale.local.engines import start_databases, write_engines_file

async def main(data_dir, stay, user, python):
    if user:
        os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
        sys.executable = python
    running = await start_databases(Path(data_dir), fsync=False)
    write_engines_file(Path(data_dir), running.addresses, None)
    print("up", flush=True)
    if stay:
        await asyncio.sleep(60)
    await running.stop()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A place for a data directory that other users can reach too, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="onsale-engines-", dir=fast_place()) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "data"


@pytest.fixture(scope="module")
def used_dir() -> Iterator[Path]:
    """A data directory with a cluster in it, for tests that stop what they start; making one takes a second."""
    with tempfile.TemporaryDirectory(prefix="onsale-engines-", dir=fast_place()) as directory:
        made = Path(directory) / "data"
        run_apart(run_apart(start(made)).stop())
        yield made


async def start(data_dir: Path, **environ: str) -> RunningDatabases:
    return await start_databases(data_dir, fsync=False, environ=OURS | environ)


def start_elsewhere(data_dir: Path, *, stay: str = "", user: str = "", python: str = "") -> subprocess.Popen[str]:
    """A process of its own that starts the engines: it stands for `onsale up`."""
    env = OURS | {"PYTHONPATH": str(ROOT), "HOME": str(data_dir.parent)}
    if user:  # who may not write where `make coverage` keeps its files
        env = {name: value for name, value in env.items() if not name.startswith("COVERAGE_")}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER, str(data_dir), stay, user, python],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def nothing_runs(data_dir: Path) -> bool:
    """Keeper and engine hold their lock for as long as one of them, or a child of theirs, lives."""
    for lock in (data_dir / "engines").glob("*.lock"):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return not any(alive(pid) for pid in engine_pids(data_dir))


def engine_pids(data_dir: Path) -> list[int]:
    """The running PostgreSQL's, by its own account; an engine that stopped in order has removed it."""
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


def fake_postgres(place: Path, *, initdb: str = "exit 0", postgres: str = "exit 0") -> Path:
    """A directory with an `initdb` and a `postgres` that know their version and then do as told."""
    place.chmod(0o755)
    for program, script in (("initdb", initdb), ("postgres", postgres)):
        answer = f'[ "$1" = --version ] && echo "{program} (PostgreSQL) 18.0" && exit 0'
        (place / program).write_text(f"#!/bin/sh\n{answer}\n{script}\n")
        (place / program).chmod(0o755)
    return place


async def write_something(engines: Engines) -> None:
    connection = await asyncpg.connect(with_driver(engines.postgres_url))
    await connection.execute("drop table if exists kept; create table kept as select 'row'::text as word")
    await connection.close()
    async with redis.asyncio.Redis.from_url(engines.redis_url) as client:
        await client.set("kept", "key")


async def read_something(engines: Engines) -> tuple[str, bytes]:
    connection = await asyncpg.connect(with_driver(engines.postgres_url))
    word = await connection.fetchval("select word from kept")
    await connection.close()
    async with redis.asyncio.Redis.from_url(engines.redis_url) as client:
        return word, await client.get("kept")


async def trouble_with(data_dir: Path, **environ: str) -> str:
    """The one line a person gets; nothing is left running."""
    with pytest.raises(OperatorError) as told:
        await start(data_dir, **environ)
    assert "\n" not in str(told.value)
    assert nothing_runs(data_dir)
    return str(told.value)


async def test_data_survives_a_stop_and_nothing_is_left_running(used_dir: Path) -> None:
    running = await start(used_dir)
    await write_something(running.addresses)
    assert not nothing_runs(used_dir)
    await running.stop()
    assert nothing_runs(used_dir)
    running = await start(used_dir)
    try:
        assert await read_something(running.addresses) == ("row", b"key")
        assert [child.returncode for child in running.children] == [None, None]
    finally:
        await running.stop()
    assert "PostgreSQL has ended" in running.own_servers[0].ended()


async def test_passwords_and_data_are_for_their_owner_only_and_needed(used_dir: Path) -> None:
    running = await start(used_dir)
    try:
        write_engines_file(used_dir, running.addresses, "http://127.0.0.1:9")
        rooms = [
            used_dir,
            used_dir / "log",
            used_dir / "engines",
            *used_dir.glob("engines/*/"),
            *used_dir.glob("engines/*/data"),
        ]
        secret = [used_dir / "engines.json", *used_dir.glob("engines/*/password"), *used_dir.glob("engines/*/*.conf")]
        assert {mode(path) for path in rooms if path.is_dir()} == {0o700}
        assert {mode(path) for path in secret} == {0o600}
        read = read_engines_file(used_dir)
        assert (read.postgres_url, read.redis_url) == (running.addresses.postgres_url, running.addresses.redis_url)
        assert read.sandbox_url == "http://127.0.0.1:9"
        assert running.addresses.postgres_url.startswith("postgresql+asyncpg://")
        address = running.addresses.redis_url.split("@")[1]
        async with redis.asyncio.Redis.from_url(f"redis://{address}") as client:
            with pytest.raises(redis.exceptions.AuthenticationError):
                await client.ping()
        address = running.addresses.postgres_url.split("@")[1]
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(f"postgresql://onsale:wrong@{address}")
    finally:
        await running.stop()


async def test_killing_the_parent_ends_the_engines_and_a_start_right_after_succeeds(used_dir: Path) -> None:
    parent = start_elsewhere(used_dir, stay="stay")
    with parent:
        assert parent.stdout is not None
        assert await asyncio.to_thread(parent.stdout.readline) == "up\n"
        await write_something(read_engines_file(used_dir))
        old_pids = engine_pids(used_dir)
        parent.kill()
    running = await start(used_dir)
    try:
        assert old_pids
        assert not any(alive(pid) for pid in old_pids)
        assert await read_something(running.addresses) == ("row", b"key")
    finally:
        await running.stop()
    assert nothing_runs(used_dir)


async def test_a_cluster_that_was_only_half_made_is_never_opened(data_dir: Path, tmp_path: Path) -> None:
    dies_halfway = fake_postgres(tmp_path, initdb='mkdir -p "$2"; touch "$2/PG_VERSION"; kill -9 $$')
    assert "could not be created" in await trouble_with(data_dir, ONSALE_POSTGRES_BIN=str(dies_halfway))
    running = await start(data_dir)
    await running.stop()
    assert sorted(path.name for path in (data_dir / "engines" / "postgres").iterdir()) == ["data", "password"]


async def test_a_second_start_on_the_same_data_is_refused_at_once(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "engines").mkdir()
    with (data_dir / "engines" / "in-use.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OperatorError, match="is in use: another `onsale up` runs on it"):
            await start(data_dir)


@pytest.mark.skipif(not AS_ROOT, reason="only root can become somebody else")
async def test_it_runs_as_an_ordinary_user(data_dir: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    data_dir.mkdir()
    os.chown(data_dir, nobody, nobody)
    ours = f"python{sys.version_info.major}.{sys.version_info.minor}"  # packages are installed for this version
    python = shutil.which(ours, path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    if python is None:
        pytest.skip(f"our own Python may lie in root's home, and there is no other {ours} for the keeper")
    with start_elsewhere(data_dir, user=str(nobody), python=python) as parent:
        said, _ = await asyncio.to_thread(parent.communicate)
    assert said == "up\n"
    assert (data_dir / "engines" / "postgres" / "data").stat().st_uid == nobody
    assert nothing_runs(data_dir)


@pytest.mark.skipif(not AS_ROOT, reason="only root needs another user")
async def test_a_root_without_user_namespaces_runs_postgres_as_nobody(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "namespaces_work", lambda: False)
    running = await start(data_dir)
    await write_something(running.addresses)
    await running.stop()
    monkeypatch.undo()
    running = await start(data_dir)
    try:
        assert await read_something(running.addresses) == ("row", b"key")
        nobody = pwd.getpwnam("nobody").pw_uid
        assert (data_dir / "engines" / "postgres" / "data" / "postmaster.pid").stat().st_uid == nobody
    finally:
        await running.stop()


async def test_a_cluster_is_opened_by_the_version_that_wrote_it(data_dir: Path) -> None:
    oldest = [
        found for place in binaries._postgres_directories(os.environ) if (found := binaries._try_postgres(place))
    ][-1]
    running = await start(data_dir, ONSALE_POSTGRES_BIN=str(oldest.directory))
    await running.stop()
    running = await start(data_dir)
    await running.stop()
    assert (data_dir / "engines" / "postgres" / "data" / "PG_VERSION").read_text().strip() == str(oldest.major)


async def test_an_engine_in_the_environment_wins(data_dir: Path, engines: Engines) -> None:
    running = await start(data_dir, ONSALE_POSTGRES_URL=engines.postgres_url, ONSALE_REDIS_URL=engines.redis_url)
    await running.stop()
    assert running.addresses == engines
    assert running.children == []
    assert list((data_dir / "engines").iterdir()) == [data_dir / "engines" / "in-use.lock"]


@pytest.mark.parametrize(
    ("version", "line"), [("rubbish", "is not a PostgreSQL data directory"), ("9", "only version")]
)
async def test_a_broken_data_directory_gives_one_clear_line(data_dir: Path, version: str, line: str) -> None:
    cluster = data_dir / "engines" / "postgres" / "data"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text(version)
    assert line in await trouble_with(data_dir)


async def test_a_data_directory_that_is_a_file_gives_one_clear_line(data_dir: Path) -> None:
    data_dir.write_text("")
    assert "cannot be used" in await trouble_with(data_dir)


async def test_a_broken_append_only_file_gives_one_clear_line(data_dir: Path) -> None:
    manifest = data_dir / "engines" / "valkey" / "data" / "appendonlydir" / "appendonly.aof.manifest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("rubbish")
    assert "Valkey did not start" in await trouble_with(data_dir)


async def test_a_missing_engine_gives_one_clear_line(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setattr(binaries, "PACKAGED_POSTGRES", ())
    assert "found: install one" in await trouble_with(data_dir, PATH="")


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
async def test_a_wrong_engine_in_the_environment_is_named(data_dir: Path, variable: str, value: str) -> None:
    assert variable in await trouble_with(data_dir, **{variable: value})


async def test_an_initdb_that_fails_is_quoted(data_dir: Path, tmp_path: Path) -> None:
    programs = fake_postgres(tmp_path, initdb="echo disk full >&2; exit 1")
    assert "could not be created: disk full" in await trouble_with(data_dir, ONSALE_POSTGRES_BIN=str(programs))


async def test_an_engine_that_fails_late_is_quoted_and_takes_the_other_along(data_dir: Path, tmp_path: Path) -> None:
    programs = fake_postgres(tmp_path, postgres="sleep 0.4; echo disk full >&2; exit 1")
    assert "PostgreSQL did not start: disk full" in await trouble_with(data_dir, ONSALE_POSTGRES_BIN=str(programs))
    assert "Ready to accept connections" in (data_dir / "log" / "valkey.log").read_text()


def test_nothing_has_run_yet_is_said_in_one_line(data_dir: Path) -> None:
    with pytest.raises(OperatorError, match="Nothing has run in"):
        read_engines_file(data_dir)
