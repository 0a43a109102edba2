"""A backup is whole or not there, of one moment, for its owner alone; what is restored is what was kept, or nothing."""

import gzip
import json
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onsale.backup import databases
from onsale.backup import folder as folders
from onsale.backup.create import SNAPSHOT_QUERIES, take_backup, take_snapshot
from onsale.backup.databases import consistent_snapshots, tables_of
from onsale.backup.folder import BadBackup
from onsale.backup.manifest import Manifest
from onsale.backup.restore import load_databases, read_manifest, require_empty_databases
from onsale.local.engines import Engines, with_driver
from shared.postgres import migrations, schema_version
from shared.postgres.schema_version import migrations_folder, revisions
from tests.onsale.kept import ROWS, SERVICES, connected, empty_database, everything
from tests.support.running.command_line import Command

LATER = """
from alembic import op
revision, down_revision = "later", "{before}"

def upgrade():
    op.execute("CREATE TABLE orders.later (id int)")
"""


@pytest.fixture
async def ledger(postgres_url: str) -> str:
    """A plain address of tables with rows in them."""
    async with connected(postgres_url) as connection:
        await connection.execute(ROWS)
    return with_driver(postgres_url)


@pytest.fixture
async def empty(engines: Engines) -> AsyncIterator[str]:
    async with empty_database(engines) as url:
        yield url


async def keep(url: str, place: Path, report: Callable[[str], None] = lambda line: None) -> Path:
    return await take_backup(dict.fromkeys(SERVICES, url), {}, place, report=report)


def found(place: Path) -> list[Path]:
    return list(place.iterdir())


async def restored(folder: Path, url: str) -> None:
    urls = dict.fromkeys(SERVICES, url)
    await require_empty_databases(urls, None)
    await load_databases(read_manifest(folder), folder, urls, report=lambda line: None)


async def test_what_comes_back_is_what_was_kept(ledger: str, empty: str, tmp_path: Path) -> None:
    await restored(await keep(ledger, tmp_path), empty)
    before, after = await everything(ledger), await everything(empty)
    assert sum(map(len, before.values())) > 15
    assert after == before
    assert len(after["orders.webhook_delivery"]) == 1, "no webhook is owed twice"
    async with connected(empty) as connection:
        told = await connection.fetch("SELECT published_at IS NULL AS due FROM orders.outbox ORDER BY id")
        assert [row["due"] for row in told] == [True, False], "the log that had the last hour is gone"
        triggers = await connection.fetch("SELECT tgenabled FROM pg_trigger WHERE NOT tgisinternal")
        assert {row["tgenabled"] for row in triggers} == {b"O"}
        new_id = "INSERT INTO orders.outbox (event_id, body) VALUES ('e', '{}') RETURNING id"
        assert await connection.fetchval(new_id) == 3, "ids go on"


async def test_a_backup_is_of_one_moment(ledger: str) -> None:
    """Whoever joins while it is taken is not in it, and no migration begins meanwhile."""
    async with connected(ledger) as fan, consistent_snapshots(dict.fromkeys(SERVICES, ledger)) as still:
        await fan.execute("INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES ('e',1,0,99,'x')")
        assert await still["queue"].connection.fetchval("SELECT max(join_seq) FROM queue.place") == 9
        free = "SELECT pg_try_advisory_lock(hashtext('onsale migrate ' || $1))"
        assert not await fan.fetchval(free, "queue")


async def test_a_backup_does_not_begin_while_tables_change(
    ledger: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(databases, "LOCK_WAIT_S", 0.05)
    async with connected(ledger) as migration:
        await migration.execute("SELECT pg_advisory_lock(hashtext('onsale migrate queue'))")
        with pytest.raises(BadBackup, match="A migration of queue is running"):
            await keep(ledger, tmp_path)
    kept = await keep(ledger, tmp_path)
    assert {schema.revision for schema in Manifest.read(kept).schemas} == {revisions(name)[-1] for name in SERVICES}


async def test_it_is_for_its_owner_alone(ledger: str, tmp_path: Path) -> None:
    kept = await keep(ledger, tmp_path / "backups")
    assert not [path for path in (kept, *kept.rglob("*")) if path.stat().st_mode & 0o077]


async def test_a_backup_that_breaks_off_leaves_nothing(ledger: str, tmp_path: Path) -> None:
    def breaks(line: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await keep(ledger, tmp_path, breaks)
    assert found(tmp_path) == []


async def test_what_was_changed_or_lost_is_refused(ledger: str, tmp_path: Path) -> None:
    kept = await keep(ledger, tmp_path)
    place = kept / "queue" / "place.copy.gz"
    whole = place.read_bytes()
    place.write_bytes(gzip.compress(b"e\t1\t0\t1\tme\t\\N\n"))
    with pytest.raises(BadBackup, match="was changed: its SHA-256"):
        read_manifest(kept)
    place.unlink()
    with pytest.raises(BadBackup, match="No such file"):
        read_manifest(kept)
    place.write_bytes(whole)
    manifest = json.loads((kept / "manifest.json").read_text())
    manifest["schemas"][0]["revision"] = "2099_01_01_0000"
    (kept / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBackup, match="does not know"):
        read_manifest(kept)
    manifest["schemas"][0]["tables"][0]["file"] = "../../etc/passwd"
    (kept / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBackup, match=r"tables\.0\.file"):
        read_manifest(kept)


async def test_it_goes_into_an_empty_database_where_nothing_runs(
    ledger: str, empty: str, redis_url: str, redis, tmp_path: Path
) -> None:
    with pytest.raises(BadBackup, match="tables of orders already"):
        await restored(await keep(ledger, tmp_path), ledger)
    urls = dict.fromkeys(SERVICES, empty)
    await require_empty_databases(urls, redis_url)
    await redis.set("inventory:{e}:counts", 1)
    with pytest.raises(BadBackup, match="Redis in ONSALE_REDIS_URL is not empty"):
        await require_empty_databases(urls, redis_url)
    with pytest.raises(BadBackup, match="cannot be reached"):
        await require_empty_databases(urls, "redis://127.0.0.1:1/0")
    async with connected(empty) as suite:
        await suite.execute("SET application_name = 'onsale-queue'")
        with pytest.raises(BadBackup, match="A suite runs"):
            await require_empty_databases(urls, None)


async def test_a_backup_of_an_older_version_is_brought_to_this_one(
    ledger: str, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept before the last migration of orders: loaded as it was, then migrated."""
    kept = await keep(ledger, tmp_path)
    before = revisions("orders")[-1]
    assert next(schema.revision for schema in Manifest.read(kept).schemas if schema.service == "orders") == before
    later = tmp_path / "migrations"
    shutil.copytree(migrations_folder("orders"), later)
    (later / "versions" / "later.py").write_text(LATER.format(before=before))
    folders = {"orders": later}
    for module in (migrations, schema_version):
        monkeypatch.setattr(module, "migrations_folder", lambda name: folders.get(name) or migrations_folder(name))
    revisions.cache_clear()
    try:
        await restored(kept, empty)
        assert (
            await migrations.current_revision_at(with_driver(empty, "asyncpg"), "orders")
            == revisions("orders")[-1]
            == "later"
        )
    finally:
        monkeypatch.undo()
        revisions.cache_clear()
    assert (await everything(empty))["orders.money_entry"] == (await everything(ledger))["orders.money_entry"]


async def test_a_snapshot_shows_seats_and_configuration_and_no_fan(ledger: str, tmp_path: Path) -> None:
    shown = await take_snapshot(dict.fromkeys(SERVICES, ledger), tmp_path, report=lambda line: None)
    seats = gzip.decompress((shown / "inventory" / "seat.csv.gz").read_bytes()).decode().splitlines()
    assert seats[0].startswith("event_id,section_id,position")
    assert seats[1].startswith("e,A,0,Ä,1,available")
    async with consistent_snapshots(dict.fromkeys(SERVICES, ledger)) as still:
        for service, tables in SNAPSHOT_QUERIES.items():
            columns = dict(await tables_of(still[service].connection, service))
            named = {column for table in tables for column in columns[table]}
            assert not named & {"holder", "user_id", "email", "customer_email", "secret", "seed"}


def test_old_ones_go_and_the_newest_stays(tmp_path: Path) -> None:
    for day in range(1, 6):
        (tmp_path / f"2026010{day}T000000Z").mkdir()
    (tmp_path / "mine").mkdir()
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert [path.name for path in folders.keep_days(tmp_path, 2, now)] == [
        "20260101T000000Z",
        "20260102T000000Z",
        "20260103T000000Z",
    ]
    assert len(folders.keep_newest(tmp_path, 1)) == 1
    assert folders.keep_days(tmp_path, 1, datetime(2027, 1, 1, tzinfo=UTC)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20260105T000000Z", "mine"]


def test_a_data_directory_that_is_not_empty_is_left_alone(
    ledger: str, onsale: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONSALE_POSTGRES_URL", ledger)
    assert onsale("backup", str(tmp_path / "kept"), "--data-dir", str(tmp_path), "--keep", "1").returncode == 0
    [kept] = (tmp_path / "kept").iterdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "keys.json").write_text("mine")
    refused = onsale("restore", str(kept), "--data-dir", str(tmp_path / "full"))
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    refused = onsale("restore", str(kept), "--data-dir", str(tmp_path / "new"))
    assert (refused.returncode, "already" in refused.stderr, (tmp_path / "new").exists()) == (2, True, False)
    monkeypatch.delenv("ONSALE_POSTGRES_URL")
    nothing = onsale("backup", str(tmp_path / "kept"), "--data-dir", str(tmp_path / "nowhere"))
    assert (nothing.returncode, "Nothing has run" in nothing.stderr) == (2, True)
