"""What an operator does with the stock and reads of it: blocks, the report, the marks of seats and the audit log."""

from typing import Any

import httpx

from services.inventory.redis_keys import Keys
from tests.inventory.conftest import EVENT, Inventory


async def block(inventory: Inventory, *seats: str, ga: int = 0, verb: str = "block", **body: Any) -> httpx.Response:
    """Blocks or unblocks seats and GA places."""
    places = {"seats": list(seats), "ga": [{"section_id": "GA1", "quantity": ga}] if ga else []}
    return await inventory.operate("POST", f"/seats/{verb}", **places, **body)


async def seat_marks(inventory: Inventory, section_id: str = "A") -> str:
    """The marks of a section's seats in Redis."""
    marks = await inventory.state.redis_stock.redis.get(Keys.of(EVENT).map + section_id)
    return str(marks.decode())


async def report(inventory: Inventory, section_id: str) -> dict[str, Any]:
    sections = (await inventory.operate("GET", "/stock")).json()["sections"]
    return next(section for section in sections if section["section_id"] == section_id)


async def audit_log(inventory: Inventory) -> list[dict[str, Any]]:
    """Every change of the stock, the newest first."""
    return list((await inventory.operate("GET", "/changes")).json()["changes"])
