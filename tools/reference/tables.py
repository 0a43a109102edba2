"""Every table and column in PostgreSQL, from the tables of services and their parts, and `columns.yaml` beside them."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sqlalchemy import Column, Dialect, Table
from sqlalchemy.dialects import postgresql

from shared.features import package_of
from shared.routes import SERVICES_WITH_TABLES, Service
from shared.web.parts import parts_of
from tools.reference.markdown import Section, code, page

ROOT = Path(__file__).parents[2]
DIALECT: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
COLUMNS = ("column", "type", "key", "what it is")
TEXT = """Each service has a schema of its own and reads no other's. PostgreSQL is the truth: everything in Redis is
built from these tables. They are for reading; a program that writes to them breaks promises. A column that may be
null is marked `?`. [PostgreSQL](../operate/databases.md) says how the schemas are spread over servers."""


class Meanings(NamedTuple):
    """What tables and columns mean, as a `columns.yaml` says; `own` is by table and column, "" is the table."""

    own: dict[tuple[str, str], str]
    everywhere: dict[str, str]

    @classmethod
    def of(cls, service: str) -> "Meanings":
        shared = yaml.safe_load((ROOT / "shared" / "postgres" / "columns.yaml").read_text(encoding="utf-8"))
        files = [
            ROOT.joinpath(*package_of(service).split("."), "columns.yaml"),
            *sorted(ROOT.glob(f"features/*/{service}/columns.yaml")),
        ]
        named = {
            (table, column): text
            for meanings in (shared["tables"], *(yaml.safe_load(file.read_text(encoding="utf-8")) for file in files))
            for table, about in meanings.items()
            for column, text in ({"": about["about"]} if "about" in about else {} | {}).items()
            | about.get("columns", {}).items()
        }
        return cls(named, shared["columns"])


def tables(service: Service) -> list[Table]:
    """The tables of a service, by name; its parts add theirs."""
    parts_of(service)
    found: list[Table] = import_module(f"{package_of(service)}.tables").metadata.sorted_tables
    return sorted(found, key=lambda table: table.name)


def meaning(meanings: Meanings, table: Table, column: Column[Any] | None = None) -> str:
    """What is said about a table, or about one of its columns; empty if nothing is."""
    comment = table.comment if column is None else column.comment
    name = "" if column is None else column.name
    return comment or meanings.own.get((table.name, name)) or meanings.everywhere.get(name, "")


def tables_page() -> str:
    """docs/reference/tables.md"""
    return page("Tables", TEXT.strip(), _sections())


def _sections() -> Iterator[Section]:
    for service in SERVICES_WITH_TABLES:
        meanings = Meanings.of(service)
        yield Section(f"Schema `{service}`")
        for table in tables(service):
            rows = [
                (code(column.name), _kind(column), _key(column), meaning(meanings, table, column)) for column in table.c
            ]
            yield Section(f"{service}.{table.name}", COLUMNS, rows, text=meaning(meanings, table), level=3)


def _kind(column: Column[Any]) -> str:
    kind = column.type.compile(dialect=DIALECT).lower().replace("timestamp with time zone", "timestamptz")
    return f"{kind}{' ?' if column.nullable else ''}"


def _key(column: Column[Any]) -> str:
    """Primary key, unique, and what it refers to."""
    refers = [f"→ {key.target_fullname.rpartition('.')[0]}" for key in column.foreign_keys]
    return ", ".join(["primary"] * column.primary_key + ["unique"] * bool(column.unique) + refers)
