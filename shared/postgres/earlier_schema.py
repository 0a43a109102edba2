"""A schema from before the first release: it is renamed, and its rows are copied into today's first tables.

Migrations were changed in place then, so a revision says nothing about the tables: what is there is read from the
catalogue. `migrations/earlier.yaml` of the service says what tables and columns were called. Every row is copied, or
nothing changes: a table or column that would be lost refuses the upgrade. The tables as they were stay in the schema
`<service>_before_0_1_0`. Jobs are not copied: they only wake workers.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Self

import asyncpg
import yaml

from shared.postgres.errors import WrongDatabase
from shared.postgres.schema_version import migrations_folder

KEPT_AS = "{}_before_0_1_0"
RUNNING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'onsale-%'
        AND application_name <> 'onsale-migrate'"""
TABLES = """
    SELECT c.relname FROM pg_class c WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p')
        AND c.relname <> 'alembic_version' AND c.relname NOT LIKE 'pgqueuer%' ORDER BY c.oid"""
COLUMNS = """
    SELECT attname AS name, format_type(atttypid, atttypmod) AS type, attnotnull AS needed, pg_get_expr(adbin, adrelid)
        AS filled_with FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
SEQUENCE = (
    "SELECT pg_get_serial_sequence($1, attname) FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'id'"
)
ADVANCE = "SELECT setval($1::regclass, last_value, is_called) FROM {}"


class UnknownShape(WrongDatabase):
    """The schema has what no earlier commit had, or lacks what cannot be made up; nothing was changed."""


@dataclass(frozen=True)
class EarlierTable:
    """What became of an earlier table: its name today; today's columns by expressions over the earlier row, a plain
    name being that of the column once; earlier columns that are not copied.
    """

    now: str
    columns: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    def value(self, column: str, there: Set[str]) -> str | None:
        """The expression for today's column, if the earlier table has it."""
        expression = self.columns.get(column)
        if expression is None or (expression.isidentifier() and expression not in there):
            return _quoted(column) if column in there else None
        return expression

    def unknown(self, there: Set[str], today: Set[str]) -> Set[str]:
        """Earlier columns that would be lost."""
        return there - today - set(self.left_out) - set(re.findall(r"\w+", " ".join(self.columns.values())))


def _changes(service: str) -> dict[str, EarlierTable]:
    found = yaml.safe_load((migrations_folder(service) / "earlier.yaml").read_text(encoding="utf-8"))
    return {table: EarlierTable(**{"now": table, **change}) for table, change in found.items()}


async def copy_earlier_schema(driver: Any, service: str, create: Sequence[str]) -> None:
    """Runs the scripts that create today's schema and copies the earlier one's rows into it, in the caller's
    transaction. Raises `WrongDatabase` when it cannot be copied, or while services run on it.
    """
    if await driver.fetchval(RUNNING):
        raise WrongDatabase(
            f"The schema of {service} is from before the first release and must be copied, but services are connected "
            "to it: stop all of them, then run `onsale migrate` again."
        )
    try:
        earlier = await _EarlierSchema.rename(driver, service)
        for script in create:
            await driver.execute(script)
        await earlier.copy()
    except asyncpg.PostgresError as failed:
        raise WrongDatabase(f"The schema of {service} could not be copied, and was not changed: {failed}") from failed


class _EarlierSchema:
    """The tables of a schema that was renamed, and what became of them."""

    def __init__(self, driver: Any, service: str, changes: Mapping[str, EarlierTable], tables: list[str]) -> None:
        self._driver, self._service, self._tables = driver, service, tables
        self._changes = {table: changes.get(table, EarlierTable(table)) for table in tables}
        self._kept = KEPT_AS.format(service)

    @classmethod
    async def rename(cls, driver: Any, service: str) -> Self:
        """Renames it, with its tables locked."""
        await driver.execute("SET LOCAL statement_timeout = 0")  # the copy takes as long as there are rows
        tables = [row["relname"] for row in await driver.fetch(TABLES, service)]
        await driver.execute("LOCK TABLE " + ", ".join(_quoted(service, table) for table in tables))
        await driver.execute(f"ALTER SCHEMA {service} RENAME TO {KEPT_AS.format(service)}")
        return cls(driver, service, await asyncio.to_thread(_changes, service), tables)

    async def copy(self) -> None:
        """Copies the rows of every table. Raises `UnknownShape`."""
        sources: dict[str, list[str]] = {}
        for table in self._tables:
            sources.setdefault(self._changes[table].now, []).append(table)
        today = [row["relname"] for row in await self._driver.fetch(TABLES, self._service)]
        if unknown := set(sources) - set(today):
            raise self._refused(f"has tables that no commit had: {', '.join(sorted(unknown))}")
        for table in today:  # in the order of their foreign keys
            if table in sources:
                await self._copy_into(table, sources[table])

    async def _copy_into(self, table: str, sources: list[str]) -> None:
        """Rows of several tables are numbered anew, by their time."""
        target, merged = _quoted(self._service, table), len(sources) > 1
        columns = [
            column for column in await self._driver.fetch(COLUMNS, target) if not (merged and column["name"] == "id")
        ]
        names = ", ".join(_quoted(column["name"]) for column in columns)
        rows = " UNION ALL ".join([await self._rows(columns, source) for source in sources])
        order = ' ORDER BY "at"' if merged else ""
        await self._driver.execute(f"ALTER TABLE {target} DISABLE TRIGGER USER")  # what they did is among the rows
        copy = f"INSERT INTO {target} ({names}) SELECT {names} FROM ({rows}) AS earlier{order}"  # noqa: S608 - quoted
        await self._driver.execute(copy)
        await self._driver.execute(f"ALTER TABLE {target} ENABLE TRIGGER USER")
        if not merged and (sequence := await self._driver.fetchval(SEQUENCE, target)):
            earlier = await self._driver.fetchval(SEQUENCE, _quoted(self._kept, sources[0]))
            await self._driver.fetchval(ADVANCE.format(earlier), sequence)

    async def _rows(self, columns: list[Any], source: str) -> str:
        """A SELECT of today's columns from an earlier table."""
        kept, change = _quoted(self._kept, source), self._changes[source]
        there = {row["name"] for row in await self._driver.fetch(COLUMNS, kept)}
        if unknown := change.unknown(there, {column["name"] for column in columns} | {"id"}):
            raise self._refused(f"has columns of {source} that no commit had: {', '.join(sorted(unknown))}")
        values = []
        for column in columns:
            value = change.value(column["name"], there) or column["filled_with"]
            if value is None and column["needed"]:
                raise self._refused(f"lacks the column {column['name']} of {source}")
            values.append(f"CAST({value or 'NULL'} AS {column['type']}) AS {_quoted(column['name'])}")
        return f"SELECT {', '.join(values)} FROM {kept}"  # noqa: S608 - quoted names, and expressions of our own

    def _refused(self, why: str) -> UnknownShape:
        return UnknownShape(
            f"The schema {self._service} {why}. Nothing was changed. Export what you need with the version that made "
            "it, and start this one with an empty database."
        )


def _quoted(*names: str) -> str:
    return ".".join(f'"{name}"' for name in names)
