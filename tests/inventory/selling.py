"""Test helpers: a sale, changes by SQL, and reconcile passes with time between them."""

from typing import Any

from sqlalchemy import text

from services.inventory.reconcile.reconciler import Reconciler
from shared.contracts.admin.inventory import ReconcilePass
from tests.inventory.conftest import EVENT, Inventory


async def sold(inventory: Inventory, holder: str, **body: Any) -> str:
    """A reservation that was bought by `order-<holder>`."""
    made = await inventory.reserve(holder, **body)
    assert made.status_code == 201, made.text
    reservation_id = str(made.json()["reservation_id"])
    for verb in ("begin-payment", "confirm"):
        assert (await inventory.step(verb, reservation_id, f"order-{holder}"))["outcome"] == "done"
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


async def reconciled(inventory: Inventory, reconciler: Reconciler | None = None, *, times: int = 2) -> ReconcilePass:
    """Reconciles `times` times, six seconds apart; the last result."""
    state = inventory.state
    reconciler = reconciler or state.reconciler
    at_s = reconciler._clock() + 1000
    reconciler._clock = lambda: at_s
    result = ReconcilePass(differences=0, old=0, corrected=0)
    for _ in range(times):
        result = await reconciler.reconcile(state.catalogue.layout(EVENT))
        at_s += 6
    return result


def another(inventory: Inventory) -> Reconciler:
    """A reconciler of another process."""
    state = inventory.state
    return Reconciler(state.db, state.redis_stock, state.catalogue, ready_since_s={}, interval_s=60)
