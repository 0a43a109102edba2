"""A schema from before the first release is copied into today's tables, whole or not at all; committed migrations never
change again.
"""

import hashlib
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from onsale.local.engines import with_driver
from shared.postgres.errors import WrongDatabase
from shared.postgres.migrations import _first_scripts, _scripts, current_revision_at, upgrade
from shared.postgres.schema_version import is_behind, is_earlier, migrations_folder, revisions
from shared.web.routes import SERVICES_WITH_TABLES

EARLIER = """
    ALTER TABLE queue.place RENAME end_reason TO how;
    ALTER TABLE queue.access_code RENAME TO code;
    ALTER TABLE queue.admission DROP extended;
    ALTER TABLE queue.audit_log RENAME TO room_change;
    ALTER TABLE queue.room_change DROP subject, DROP role, ADD event_id text NOT NULL;
    ALTER SEQUENCE queue.audit_log_id_seq RENAME TO room_change_id_seq;
    INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, how, ended_at)
        VALUES ('e', 1, 0, 1, 'h', 'left', now()), ('e', 1, 0, 2, 'i', NULL, NULL);
    INSERT INTO queue.code (event_id, code_hash, lane, epoch, uses_max, uses) VALUES ('e', 'x', 1, 1, 2, 1);
    INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state) VALUES ('e', 1, 0, 2, 1, 'called');
    INSERT INTO queue.room_change (event_id, actor, action) VALUES ('e', 'me', 'open'), ('e', 'me', 'close');
    DELETE FROM queue.room_change WHERE action = 'close';
    INSERT INTO queue.outbox (event_id, body) VALUES ('e', '{}');
    UPDATE queue.alembic_version SET version_num = '0001'"""
HASHES = Path(__file__).parent / "migrations.sha256"
ROOT = Path(__file__).parents[3]


@pytest.fixture
async def earlier(postgres: AsyncEngine, postgres_url: str) -> asyncpg.Connection:
    """A database whose schema `queue` has names, and lacks columns, of long ago."""
    connection = await asyncpg.connect(with_driver(postgres_url))
    await connection.execute(EARLIER)
    yield connection
    await connection.close()


async def test_every_row_is_copied_under_its_name_of_today(earlier: asyncpg.Connection, postgres_url: str) -> None:
    await upgrade(postgres_url, "queue")
    assert await current_revision_at(postgres_url, "queue") == revisions("queue")[-1]
    places = await earlier.fetch("SELECT join_seq, end_reason FROM queue.place ORDER BY join_seq")
    assert [tuple(row) for row in places] == [(1, "left"), (2, None)]
    assert await earlier.fetchval("SELECT uses FROM queue.access_code WHERE code_hash = 'x'") == 1
    assert await earlier.fetchval("SELECT extended FROM queue.admission") is False
    entry = await earlier.fetchrow("SELECT id, subject, action, role FROM queue.audit_log")
    assert tuple(entry) == (1, "event:e", "open", None)
    assert await earlier.fetchval("SELECT count(*) FROM queue_before_0_1_0.code") == 1, "the tables as they were"


async def test_ids_go_on_after_the_last_one_ever_given(earlier: asyncpg.Connection, postgres_url: str) -> None:
    await upgrade(postgres_url, "queue")
    write = "INSERT INTO queue.audit_log (actor, action, subject) VALUES ('a', 'b', 'c') RETURNING id"
    assert await earlier.fetchval(write) == 3, "entry 2 was deleted, its number is not given again"


@pytest.mark.parametrize("more", [
    "ALTER TABLE queue.place ADD colour text",
    "CREATE TABLE queue.lounge (event_id text)",
    "ALTER TABLE queue.room_change DROP actor",
    "ALTER TABLE queue.place DROP CONSTRAINT ck_place_end_reason; UPDATE queue.place SET how = 'x' WHERE join_seq = 1",
])  # fmt: skip
async def test_what_would_be_lost_refuses_the_upgrade_and_nothing_is_changed(
    more: str, earlier: asyncpg.Connection, postgres_url: str
) -> None:
    await earlier.execute(more)
    with pytest.raises(WrongDatabase, match=r"schema (of )?queue .*(not|Nothing was) changed"):
        await upgrade(postgres_url, "queue")
    assert await earlier.fetchval("SELECT version_num FROM queue.alembic_version") == "0001"
    assert await earlier.fetchval("SELECT count(*) FROM queue.place WHERE how IS NOT NULL") == 1


async def test_it_is_not_copied_under_running_services(earlier: asyncpg.Connection, postgres_url: str) -> None:
    settings = {"application_name": "onsale-queue"}
    running = await asyncpg.connect(with_driver(postgres_url), server_settings=settings)
    with pytest.raises(WrongDatabase, match="services are connected to it: stop all of them"):
        await upgrade(postgres_url, "queue")
    await running.close()
    await upgrade(postgres_url, "queue")


def test_no_revision_of_this_version_is_taken_for_an_earlier_one() -> None:
    for service in SERVICES_WITH_TABLES:
        assert not any(is_earlier(service, revision) for revision in (*revisions(service), None, "2099_01_01_0000"))
    assert is_earlier("queue", "0001")
    assert is_behind("queue", "0001"), "a service refuses it, and says to run `onsale migrate`"
    assert is_earlier("inventory", "20261121_1820")
    assert is_earlier("orders", "2026_11_22_2011")


def test_a_committed_migration_never_changes() -> None:
    """The file of hashes names each. After `sha256sum services/*/migrations/versions/*.*` a new one is added there."""
    found = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for service in SERVICES_WITH_TABLES
        for path in (migrations_folder(service) / "versions").glob("*.*")
    }
    for service in SERVICES_WITH_TABLES:  # libraries write a part of it
        scripts = "\n".join(_first_scripts(service))
        assert _scripts.get(None) is None, "what comes afterwards is run, not collected"
        found[f"{service}, first"] = hashlib.sha256(scripts.encode()).hexdigest()
    kept = {name: digest for digest, _, name in (line.partition("  ") for line in HASHES.read_text().splitlines())}
    changed = sorted(name for name in found.keys() & kept.keys() if found[name] != kept[name])
    assert not changed, "undo this, and write the change as a new migration"
    assert found == kept
