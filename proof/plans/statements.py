"""Collects every statement that is written as SQL: the files in `sql/`, the literals in `text(…)` and the checks of the
invariants; of a service, and of the features' parts of it, which lie in `features/NAME/SERVICE`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from features.promo.orders.codes import REDEMPTIONS
from services.queue.line.invariants import DB_CHECKS
from shared.features import package_of
from shared.postgres.engine import statement

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
