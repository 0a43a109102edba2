"""Measures the cost of a statement: the pages it reads and the rows it examines; and the limits for both."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from onsale.local.engines import with_driver
from shared.postgres.engine import PLANNER

PAGES_PER_ROW, PAGES_BASE = 100, 200
EXAMINED_PER_ROW, EXAMINED_BASE = 40, 20_000
FILTERS = ("Filter", "Join Filter", "Index Recheck")


class Cost(NamedTuple):
    """Pages of tables and indexes, rows examined in all steps of the plan, and rows returned."""

    pages: int
    examined: int
    returned: int

    def is_allowed(self, rows: int) -> bool:
        """True if it is within the limits for a statement that concerns so many rows."""
        return (
            self.pages <= PAGES_PER_ROW * rows + PAGES_BASE and self.examined <= EXAMINED_PER_ROW * rows + EXAMINED_BASE
        )


async def measure(url: str, sql: str, args: Sequence[Any]) -> Cost:
    """Runs the statement with the settings of the service's connections, in a transaction that is rolled back; twice,
    because the first run marks the dead entries of the indexes that it meets.
    """
    connection = await asyncpg.connect(with_driver(url), server_settings=PLANNER | {"statement_timeout": "5000"})
    try:
        explained = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}"
        await connection.execute("BEGIN")
        await connection.fetchval(explained, *args)
        await connection.execute("ROLLBACK; BEGIN")
        answer = await connection.fetchval(explained, *args)
    finally:
        await connection.close()
    plan = json.loads(answer)[0]["Plan"]
    return Cost(_pages(plan), _examined(plan), int(plan["Actual Rows"]))


def _pages(step: dict[str, Any]) -> int:
    """The larger of its own pages and its children's: a step that changes rows may not include its children's pages."""
    own = int(step["Shared Hit Blocks"] + step["Shared Read Blocks"])
    return max(own, sum(_pages(child) for child in step.get("Plans", [])))


def _examined(step: dict[str, Any]) -> int:
    rows = step["Actual Rows"] + sum(step.get(f"Rows Removed by {why}", 0) for why in FILTERS)
    return int(rows * step["Actual Loops"]) + sum(_examined(child) for child in step.get("Plans", []))
