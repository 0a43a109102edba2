"""No statement reads more than it is about, however much there is and whatever the planner knows.

Each is run on a thousand rows and on fifty thousand, before its tables were ever counted and after. What it touches is
taken from `EXPLAIN (ANALYZE, BUFFERS)`: pages of tables and indexes, and rows that a step of the plan looked at.
"""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from tests.plans import inventory_cases, orders_cases, queue_cases
from tests.plans.case import Case
from tests.plans.conftest import LARGE, SERVICES, SMALL, STATES, State
from tests.plans.statements import statements
from tests.plans.touched import LOOKS_A_ROW, LOOKS_BESIDES, PAGES_A_ROW, PAGES_BESIDES, touched

CASES = {"inventory": inventory_cases, "queue": queue_cases, "orders": orders_cases}
STATEMENTS = [(service, name, sql) for service in SERVICES for name, sql in statements(service).items()]


def test_every_statement_is_tried() -> None:
    """A new one is entered in `<service>_cases.py`, with how many rows it concerns."""
    for service in SERVICES:
        assert statements(service).keys() == CASES[service].CASES.keys(), service


@pytest.mark.parametrize(("service", "name", "sql"), STATEMENTS, ids=[f"{s}-{n}" for s, n, _ in STATEMENTS])
async def test_what_a_statement_touches_follows_from_what_it_is_about(
    filled: dict[State, str], service: str, name: str, sql: str
) -> None:
    case: Case = CASES[service].CASES[name]
    by_state = {state: await _touched(filled[state], service, sql, case) for state in STATES}
    for counted in (False, True):
        few_rows, rows = case.rows(SMALL, counted=counted), case.rows(LARGE, counted=counted)
        (few, _), (pages, looks) = by_state[SMALL, counted], by_state[LARGE, counted]
        seen = f"{'counted' if counted else 'not counted'}: {pages} pages, {looks} looks for {rows} rows"
        assert pages <= PAGES_A_ROW * rows + PAGES_BESIDES, seen
        assert looks <= LOOKS_A_ROW * rows + LOOKS_BESIDES, seen
        assert rows == few_rows or pages / rows <= 2 * few / few_rows + 2, f"{few} pages for {few_rows}; {seen}"


async def _touched(url: str, service: str, sql: str, case: Case) -> tuple[int, int]:
    """Pages and looks."""
    sql, args = _numbered(sql, {**CASES[service].VALUES, **case.values}) if not case.args else (sql, list(case.args))
    pages, looks, _ = await touched(url, service, sql, args)
    return pages, looks


def _numbered(sql: str, values: dict[str, Any]) -> tuple[str, list[Any]]:
    """As the driver takes it."""
    compiled = text(sql).compile(dialect=PGDialect_asyncpg())
    names = compiled.positiontup or []
    return compiled.string, [values[name] for name in names]
