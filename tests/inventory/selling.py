"""Sales by hand, faults put into the ledger, and looks as if time passed."""

from typing import Any

from sqlalchemy import text

from services.inventory.reconcile.reconciler import Reconciler
from tests.inventory.conftest import EVENT, Inventory


async def sold(inventory: Inventory, holder: str, **body: Any) -> str:
    """A reservation that was bought by `order-<holder>`."""
    made = await inventory.reserve(holder, **body)
    assert made.status_code == 201, made.text
    reservation_id = str(made.json()["reservation_id"])
    for verb in ("begin-payment", "confirm"):
        assert (await inventory.step(verb, reservation_id, f"order-{holder}"))["word"] == "done"
    return reservation_id


async def sql(inventory: Inventory, *statements: str, **values: Any) -> list[Any]:
    """Changes nobody in the suite would make; the rows of the last one, if it has any."""
    rows: list[Any] = []
    async with inventory.state.db.begin() as connection:
        for statement in statements:
            done = await connection.execute(text(statement), {"event_id": EVENT, **values})
            rows = list(done) if done.returns_rows else []
    return rows


async def status(inventory: Inventory, reservation_id: str) -> str:
    answer = await inventory.ask("/reservations/read", {"reservation_ids": [reservation_id]})
    return str(answer["reservations"][0]["status"])


async def looks(inventory: Inventory, reconciler: Reconciler | None = None, *, times: int = 2) -> dict[str, int]:
    """Looks, six seconds apart; what the last one says."""
    state = inventory.state
    reconciler = reconciler or state.reconciler
    at_s = reconciler._clock() + 1000
    reconciler._clock = lambda: at_s
    said: dict[str, int] = {}
    for _ in range(times):
        said = await reconciler.look(state.catalogue.layout(EVENT))
        at_s += 6
    return said


def another(inventory: Inventory) -> Reconciler:
    """A reconciler of another process."""
    state = inventory.state
    return Reconciler(state.db, state.redis_stock, state.catalogue, ready_since_s={}, interval_s=60)
