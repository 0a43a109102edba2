"""What an operator reads of the stock: the report of a section, the marks of its seats and the audit log."""

from typing import Any

from services.inventory.redis_keys import Keys
from tests.inventory.conftest import EVENT, Inventory


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
