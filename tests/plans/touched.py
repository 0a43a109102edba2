"""What a statement touches where it runs: pages it reads and rows it looks at, and how many of both are too many."""

import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from onsale.local.engines import with_driver

PAGES_A_ROW, PAGES_BESIDES = 100, 200
REMOVED = ("Filter", "Join Filter", "Index Recheck")
LOOKS_A_ROW, LOOKS_BESIDES = 40, 20_000


async def touched(url: str, service: str, sql: str, args: Sequence[Any]) -> tuple[int, int, int]:
    """Pages, looks and the rows it answers, as the service connects; whatever it changed is undone."""
    connection = await asyncpg.connect(with_driver(url), server_settings=_session(service))
    try:
        await connection.execute("BEGIN")
        answer = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}", *args)
    finally:
        await connection.close()
    plan = json.loads(answer)[0]["Plan"]
    return _pages(plan), _looks(plan), int(plan["Actual Rows"])


def _session(service: str) -> dict[str, str]:
    """As the service connects: see `shared/postgres/engine.py`."""
    return {"jit": "off", "statement_timeout": "5000"} | ({"enable_seqscan": "off"} if service == "orders" else {})


def _pages(step: dict[str, Any]) -> int:
    """What changes rows may be told beside its parent and not in it."""
    own = int(step["Shared Hit Blocks"] + step["Shared Read Blocks"])
    return max(own, sum(_pages(below) for below in step.get("Plans", [])))


def _looks(step: dict[str, Any]) -> int:
    each = step["Actual Rows"] + sum(step.get(f"Rows Removed by {why}", 0) for why in REMOVED)
    return int(each * step["Actual Loops"]) + sum(_looks(below) for below in step.get("Plans", []))
