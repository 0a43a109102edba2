"""The cost of every SQL statement depends on the rows it concerns, not on the tables' size or the planner's statistics.

Each is run on one, twenty and fifty thousand rows, before and after `ANALYZE`. `EXPLAIN (ANALYZE, BUFFERS)` gives its
cost: pages of tables and indexes, and rows that the steps of the plan examined.

The statements whose plans are kept have the same plan at every size at which it may be made.

Two indexes can seem equally good while a table is small, and a kept plan would go on with the wrong one (0089).
"""

import re
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from onsale.local.engines import Engines, with_driver
from proof.plans import inventory_cases, orders_cases, queue_cases
from proof.plans.conftest import SERVICES, SMALL, STATES, State, load
from proof.plans.statements import Case, Cost, measure, statements
from shared.postgres.engine import PLANNER
from tests.support.engines.engines import in_database, sql

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


SIZES = (0, 100, 150, 200, 250, 300, 500, 1_000, 3_000, 15_000)
SCAN = re.compile(r"(\w+ (?:Only )?Scan)(?: Backward)?(?: using (\w+))? on (?:inventory\.)?(\w+)")
KEPT = PLANNER | {"plan_cache_mode": "force_generic_plan"}


@pytest.mark.parametrize("name", ["sql/begin", "sql/confirm"])
async def test_a_kept_plan_looks_up_whole_keys_at_every_size(engines: Engines, migrated: str, name: str) -> None:
    scans = {}
    for size in SIZES:
        database = f"kept_{size}_{name[4:]}"
        await sql(engines, f"create database {database} template {migrated}")
        try:
            if size:
                await load(in_database(engines, database), size)
            plan = await _explain(in_database(engines, database), name)
        finally:
            await sql(engines, f"drop database {database} with (force)")
        assert not re.search("Hash Join|Merge Join|Seq Scan|Bitmap", plan), f"{size}: {plan}"
        scans[size] = sorted(SCAN.findall(plan))
    assert all(of_size == scans[0] for of_size in scans.values()), scans


async def _explain(url: str, name: str) -> str:
    connection = await asyncpg.connect(with_driver(url), server_settings=KEPT)
    try:
        args = inventory_cases.CASES[name].args
        return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statements('inventory')[name]}", *args))
    finally:
        await connection.close()
