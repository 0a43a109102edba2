"""Backup, restore and snapshot: complete or not there, consistent, readable by the owner only, restored row by row."""

import gzip
import json
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onsale.backup import databases
from onsale.backup.create import SNAPSHOT_QUERIES, take_backup, take_snapshot
from onsale.backup.databases import consistent_snapshots, tables_of
from onsale.backup.manifest import BadBackup, Manifest, keep_days, keep_newest
from onsale.backup.restore import load_databases, read_manifest, require_empty_databases
from onsale.local.engines import Engines, with_driver
from shared.postgres import migrations, schema_version
from shared.postgres.schema_version import migrations_folder, revisions
from tests.onsale.backup_rows import ROWS, SERVICES, all_rows, connected, empty_database
from tests.support.running.program import Command
from tests.support.spreadsheets import csv_rows

LATER = """
from alembic import op
revision = "later"
down_revision = "{before}"

def upgrade():
    op.execute("CREATE TABLE orders.later (id int)")
"""


@pytest.fixture
async def database(own_database: str) -> str:
    """The address of a database whose tables have rows."""
    async with connected(own_database) as connection:
        await connection.execute(ROWS)
    return with_driver(own_database)


@pytest.fixture
async def empty_url(engines: Engines) -> AsyncIterator[str]:
    async with empty_database(engines) as url:
        yield url


async def back_up(url: str, folder: Path, report: Callable[[str], None] = lambda line: None) -> Path:
    return await take_backup(dict.fromkeys(SERVICES, url), {}, folder, report=report)


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def restore(folder: Path, url: str) -> None:
    urls = dict.fromkeys(SERVICES, url)
    await require_empty_databases(urls, None)
    await load_databases(read_manifest(folder), folder, urls, report=lambda line: None)


async def test_a_restored_database_has_the_rows_of_the_backup(database: str, empty_url: str, tmp_path: Path) -> None:
    await restore(await back_up(database, tmp_path), empty_url)
    before, after = await all_rows(database), await all_rows(empty_url)
    assert sum(map(len, before.values())) > 15
    assert after == before
    async with connected(empty_url) as connection:
        cursors = dict(await connection.fetch("SELECT name, id FROM orders.outbox_cursor"))
        assert cursors["relay"] == 1, "the lost event log had the last hour: it is published again"
        assert cursors["webhooks"] == 2, "no webhook is sent twice"
        triggers = await connection.fetch("SELECT tgenabled FROM pg_trigger WHERE NOT tgisinternal")
        assert {row["tgenabled"] for row in triggers} == {b"O"}
        new_id = "INSERT INTO orders.outbox_batch (events) VALUES ('[]') RETURNING id"
        assert await connection.fetchval(new_id) == 3, "ids continue"


async def test_events_of_a_backup_of_0_1_0_are_published_again(
    engines: Engines, empty_url: str, tmp_path: Path
) -> None:
    """The last hour of them with the batch they were brought along in, and what waited."""
    async with empty_database(engines) as released:
        for service in SERVICES:
            await migrations.upgrade(with_driver(released, "asyncpg"), service, revisions(service)[0])
        async with connected(released) as connection:
            await connection.execute("""
                INSERT INTO orders.outbox (event_id, body, published_at) VALUES
                    ('e', '{"id": "old"}', now() - interval '3 hours'), ('e', '{"id": "waits"}', NULL),
                    ('e', '{"id": "new"}', now() - interval '2 minutes')""")
        backup = await back_up(released, tmp_path)
    await restore(backup, empty_url)
    async with connected(empty_url) as connection:
        due = await connection.fetch("""
            SELECT e ->> 'id' FROM orders.outbox_batch b, jsonb_array_elements(b.events) AS e
            WHERE b.id > (SELECT id FROM orders.outbox_cursor WHERE name = 'relay') ORDER BY b.id""")
    assert [row[0] for row in due] == ["old", "new", "waits"]


async def test_a_backup_is_consistent(database: str) -> None:
    """It does not contain a fan who joins while it is taken, and no migration begins meanwhile."""
    async with connected(database) as fan, consistent_snapshots(dict.fromkeys(SERVICES, database)) as snapshots:
        await fan.execute("INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES ('e',1,0,99,'x')")
        assert await snapshots["queue"].connection.fetchval("SELECT max(join_seq) FROM queue.place") == 9
        try_lock = "SELECT pg_try_advisory_lock(hashtext('onsale migrate ' || $1))"
        assert not await fan.fetchval(try_lock, "queue")


async def test_a_backup_is_refused_while_a_migration_runs(
    database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(databases, "LOCK_WAIT_S", 0.05)
    async with connected(database) as migration:
        await migration.execute("SELECT pg_advisory_lock(hashtext('onsale migrate queue'))")
        with pytest.raises(BadBackup, match="A migration of queue is running"):
            await back_up(database, tmp_path)
    backup = await back_up(database, tmp_path)
    assert {schema.revision for schema in Manifest.read(backup).schemas} == {revisions(name)[-1] for name in SERVICES}


async def test_only_the_owner_can_read_a_backup(database: str, tmp_path: Path) -> None:
    backup = await back_up(database, tmp_path / "backups")
    assert not [path for path in (backup, *backup.rglob("*")) if path.stat().st_mode & 0o077]


async def test_a_backup_that_fails_leaves_no_files(database: str, tmp_path: Path) -> None:
    def fail(line: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await back_up(database, tmp_path, fail)
    assert files_in(tmp_path) == []


async def test_a_backup_with_a_changed_or_missing_file_is_refused(database: str, tmp_path: Path) -> None:
    backup = await back_up(database, tmp_path)
    table_file = backup / "queue" / "place.copy.gz"
    content = table_file.read_bytes()
    table_file.write_bytes(gzip.compress(b"e\t1\t0\t1\tme\t\\N\n"))
    with pytest.raises(BadBackup, match="was changed: its SHA-256"):
        read_manifest(backup)
    table_file.unlink()
    with pytest.raises(BadBackup, match="No such file"):
        read_manifest(backup)
    table_file.write_bytes(content)
    manifest = json.loads((backup / "manifest.json").read_text())
    manifest["schemas"][0]["revision"] = "2099_01_01_0000"
    (backup / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBackup, match="does not know"):
        read_manifest(backup)
    manifest["schemas"][0]["tables"][0]["file"] = "../../etc/passwd"
    (backup / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBackup, match=r"tables\.0\.file"):
        read_manifest(backup)


async def test_a_restore_that_fails_leaves_the_databases_empty(database: str, empty_url: str, tmp_path: Path) -> None:
    """The last of all files has fewer rows than the manifest says."""
    backup = await back_up(database, tmp_path)
    whole = (backup / "manifest.json").read_text()
    manifest = json.loads(whole)
    manifest["schemas"][-1]["tables"][-1]["rows"] += 1
    (backup / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBackup, match="rows, not"):
        await restore(backup, empty_url)
    async with connected(empty_url) as restored:
        assert not any([await restored.fetchval(databases.HAS_SCHEMA, service) for service in SERVICES])
    (backup / "manifest.json").write_text(whole)
    await restore(backup, empty_url)


async def test_a_restore_needs_an_empty_database_an_empty_redis_and_no_running_suite(
    database: str, empty_url: str, redis_url: str, redis, tmp_path: Path
) -> None:
    with pytest.raises(BadBackup, match="tables of orders already"):
        await restore(await back_up(database, tmp_path), database)
    urls = dict.fromkeys(SERVICES, empty_url)
    await require_empty_databases(urls, redis_url)
    await redis.set("inventory:{e}:counts", 1)
    with pytest.raises(BadBackup, match="Redis in ONSALE_REDIS_URL is not empty"):
        await require_empty_databases(urls, redis_url)
    with pytest.raises(BadBackup, match="cannot be reached"):
        await require_empty_databases(urls, "redis://127.0.0.1:1/0")
    async with connected(empty_url) as suite:
        await suite.execute("SET application_name = 'onsale-queue'")
        with pytest.raises(BadBackup, match="A suite runs"):
            await require_empty_databases(urls, None)


async def test_a_restored_backup_of_an_older_version_is_migrated(
    database: str, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup is older than the last migration of orders: it is loaded as it is, then migrated."""
    backup = await back_up(database, tmp_path)
    before = revisions("orders")[-1]
    assert next(schema.revision for schema in Manifest.read(backup).schemas if schema.service == "orders") == before
    later = tmp_path / "migrations"
    shutil.copytree(migrations_folder("orders"), later)
    (later / "versions" / "later.py").write_text(LATER.format(before=before))
    folders = {"orders": later}
    for module in (migrations, schema_version):
        monkeypatch.setattr(module, "migrations_folder", lambda name: folders.get(name) or migrations_folder(name))
    revisions.cache_clear()
    try:
        await restore(backup, empty_url)
        assert (
            await migrations.current_revision_at(with_driver(empty_url, "asyncpg"), "orders")
            == revisions("orders")[-1]
            == "later"
        )
    finally:
        monkeypatch.undo()
        revisions.cache_clear()
    assert (await all_rows(empty_url))["orders.money_entry"] == (await all_rows(database))["orders.money_entry"]


async def test_a_snapshot_has_seats_and_configuration_and_no_data_of_fans(database: str, tmp_path: Path) -> None:
    snapshot = await take_snapshot(dict.fromkeys(SERVICES, database), tmp_path, report=lambda line: None)
    [seat] = csv_rows(gzip.decompress((snapshot / "inventory" / "seat.csv.gz").read_bytes()))
    assert (seat["section_id"], seat["position"], seat["row"], seat["status"]) == ("A", "0", "'=Ä", "available")
    async with consistent_snapshots(dict.fromkeys(SERVICES, database)) as snapshots:
        for service, tables in SNAPSHOT_QUERIES.items():
            columns = dict(await tables_of(snapshots[service].connection, service))
            column_names = {column for table in tables for column in columns[table]}
            assert not column_names & {"holder", "user_id", "email", "customer_email", "secret", "seed"}


def test_old_backups_are_removed_and_the_newest_stays(tmp_path: Path) -> None:
    for day in range(1, 6):
        (tmp_path / f"2026010{day}T000000Z").mkdir()
    (tmp_path / "mine").mkdir()
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert [path.name for path in keep_days(tmp_path, 2, now)] == [
        "20260101T000000Z",
        "20260102T000000Z",
        "20260103T000000Z",
    ]
    assert len(keep_newest(tmp_path, 1)) == 1
    assert keep_days(tmp_path, 1, datetime(2027, 1, 1, tzinfo=UTC)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20260105T000000Z", "mine"]


def test_a_restore_refuses_a_data_directory_that_is_not_empty(
    database: str, onsale: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONSALE_POSTGRES_URL", database)
    assert onsale("backup", str(tmp_path / "kept"), "--data-dir", str(tmp_path), "--keep", "1").returncode == 0
    [backup] = (tmp_path / "kept").iterdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "keys.json").write_text("mine")
    refused = onsale("restore", str(backup), "--data-dir", str(tmp_path / "full"))
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    refused = onsale("restore", str(backup), "--data-dir", str(tmp_path / "new"))
    assert (refused.returncode, "already" in refused.stderr, (tmp_path / "new").exists()) == (2, True, False)
    monkeypatch.delenv("ONSALE_POSTGRES_URL")
    no_suite = onsale("backup", str(tmp_path / "kept"), "--data-dir", str(tmp_path / "nowhere"))
    assert (no_suite.returncode, "Nothing has run" in no_suite.stderr) == (2, True)
