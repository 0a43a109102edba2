"""Collects every statement that is written as SQL: the files in `sql/`, the literals in `text(…)` and the checks of the
invariants; of a service, and of the features' parts of it, which lie in `features/NAME/SERVICE`.

A case of a statement: the values it is run with, and how many rows it concerns.

Measures the cost of a statement: the pages it reads and the rows it examines; and the limits for both.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from features.promo.orders.codes import REDEMPTIONS
from onsale.local.engines import with_driver
from services.queue.line.invariants import DB_CHECKS
from shared.features import package_of
from shared.postgres.engine import PLANNER, statement

ROOT = Path(__file__).parents[2]
TABLES = re.compile(r"(^|_)tables$")
NO_PLAN = re.compile(
    r"SET LOCAL|SELECT pg_\w*(advisory|notify)\w*|SELECT (CAST\()?(extract\(epoch FROM )?clock_timestamp\(\)"
)
COMPOSED = {
    "queue": {f"audit {name}": sql for name, sql in DB_CHECKS.items()},
    "orders": {"sql/insert redemptions": str(statement("services.orders.store", "insert", REDEMPTIONS))},
}


def statements(service: str) -> dict[str, str]:
    """By name: `sql/<verb>`, `<module>.<CONSTANT>` or `<module>.<function>`, `audit <invariant>`."""
    found: dict[str, str] = {}
    for folder in (ROOT.joinpath(*package_of(service).split(".")), *sorted((ROOT / "features").glob(f"*/{service}"))):
        found |= {f"sql/{file.stem}": file.read_text() for file in sorted(folder.rglob("sql/*.sql"))}
        for file in sorted(folder.rglob("*.py")):
            if "migrations" not in file.parts and not TABLES.search(file.stem):
                module = ".".join(file.relative_to(folder).with_suffix("").parts)
                found |= dict(_texts(module, ast.parse(file.read_text())))
    found |= COMPOSED.get(service, {})
    return {name: sql for name, sql in found.items() if not NO_PLAN.match(_without_comments(sql))}


def _without_comments(sql: str) -> str:
    return " ".join(line for line in sql.splitlines() if not line.startswith("--")).strip()


def _texts(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names and literal arguments of `text(…)`; statements that are composed elsewhere are in `COMPOSED`."""
    imported = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "sqlalchemy")
    made_of_sql = any(alias.name == "text" for node in imported for alias in node.names)
    for top in tree.body:
        name = top.targets[0].id if isinstance(top, ast.Assign) and isinstance(top.targets[0], ast.Name) else None
        for node in ast.walk(top):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name
            if not made_of_sql:
                continue
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "text":
                literal = node.args[0]
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield f"{module}.{name}", literal.value


Rows = int | Callable[[int], int]


class Case:
    """`rows`: the rows it concerns, as a number or as a function of the tables' size. `values` are added to the
    service's own; a statement with numbered parameters takes `args` instead. `is_rare`: no request waits for it, so it
    may read its whole table as long as the table was never analyzed.
    """

    def __init__(self, rows: Rows, /, *args: Any, is_rare: bool = False, **values: Any) -> None:
        self._rows, self._is_rare, self.args, self.values = rows, is_rare, args, values

    def rows(self, size: int, *, analyzed: bool) -> int:
        if self._is_rare and not analyzed:
            return size
        return max(1, self._rows if isinstance(self._rows, int) else self._rows(size))


def every(size: int) -> int:
    """The rows of a statement that concerns the whole table."""
    return size


def fan(number: int) -> str:
    """A loaded holder, as long and as random as a real one: an index of them is larger than one of numbers."""
    return md5(str(number).encode(), usedforsecurity=False).hexdigest()


def ids(start: int, count: int, *, step: int = 5) -> list[str]:
    """Ids of loaded reservations. Their status depends on the number modulo five."""
    return [fan(i) for i in range(start, start + count * step, step)]


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
