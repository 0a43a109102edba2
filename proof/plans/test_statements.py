"""The cost of every SQL statement depends on the rows it concerns, not on the tables' size or the planner's statistics.

Each is run on one, twenty and fifty thousand rows, before and after `ANALYZE`. `EXPLAIN (ANALYZE, BUFFERS)` gives its
cost: pages of tables and indexes, and rows that the steps of the plan examined.
"""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from proof.plans import inventory_cases, orders_cases, queue_cases
from proof.plans.case import Case
from proof.plans.conftest import SERVICES, SMALL, STATES, State
from proof.plans.cost import Cost, measure
from proof.plans.statements import statements

CASES = {"inventory": inventory_cases, "queue": queue_cases, "orders": orders_cases}
STATEMENTS = [(service, name, sql) for service in SERVICES for name, sql in statements(service).items()]


@pytest.mark.parametrize(("service", "name", "sql"), STATEMENTS, ids=[f"{s}-{n}" for s, n, _ in STATEMENTS])
async def test_the_cost_of_a_statement_depends_on_the_rows_it_concerns(
    databases: dict[State, str], service: str, name: str, sql: str
) -> None:
    case: Case = CASES[service].CASES[name]
    costs = {state: await _measure(databases[state], service, sql, case) for state in STATES}
    for (size, analyzed), cost in costs.items():
        rows, few_rows = case.rows(size, analyzed=analyzed), case.rows(SMALL, analyzed=analyzed)
        found = f"{'analyzed' if analyzed else 'not analyzed'}: {cost} for {rows} of {size} rows"
        assert cost.is_allowed(rows), found
        few_pages = costs[SMALL, analyzed].pages
        assert rows == few_rows or cost.pages / rows <= 2 * few_pages / few_rows + 2, (
            f"{few_pages} pages for {few_rows}; {found}"
        )


async def _measure(url: str, service: str, sql: str, case: Case) -> Cost:
    sql, args = _numbered(sql, {**CASES[service].VALUES, **case.values}) if not case.args else (sql, list(case.args))
    return await measure(url, sql, args)


def _numbered(sql: str, values: dict[str, Any]) -> tuple[str, list[Any]]:
    """The statement with numbered parameters, as the driver takes it, and their values."""
    compiled = text(sql).compile(dialect=PGDialect_asyncpg())
    names = compiled.positiontup or []
    return compiled.string, [values[name] for name in names]
