"""Actions shared by the inventory tests: sales, statements in SQL, ends of sessions and reconciliation."""

from typing import Any

from sqlalchemy import text

from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.redis_keys import Keys
from shared.contracts.admin.inventory import ReconcilePass
from tests.inventory.conftest import EVENT, Inventory


async def sell(inventory: Inventory, holder: str, **body: Any) -> str:
    """A reservation that `order-<holder>` has bought."""
    reservation_id = await inventory.hold(holder, **body)
    await buy(inventory, reservation_id, f"order-{holder}")
    return reservation_id


async def buy(inventory: Inventory, reservation_id: str, order_reference: str) -> None:
    for verb in ("begin-payment", "confirm"):
        assert (await inventory.step(verb, reservation_id, order_reference))["outcome"] == "done"


async def sql(inventory: Inventory, *statements: str, **values: Any) -> list[Any]:
    """Runs statements in one transaction; returns the rows of the last one, if it has any."""
    rows: list[Any] = []
    async with inventory.state.db.begin() as connection:
        for statement in statements:
            result = await connection.execute(text(statement), {"event_id": EVENT, **values})
            rows = list(result) if result.returns_rows else []
    return rows


async def record(inventory: Inventory, reservation_id: str) -> dict[str, Any]:
    """The reservation as other services read it."""
    answer = await inventory.post_internal("/reservations/read", {"reservation_ids": [reservation_id]})
    return dict(answer["reservations"][0])


async def status(inventory: Inventory, reservation_id: str) -> str:
    return str((await record(inventory, reservation_id))["status"])


async def usage(inventory: Inventory, holder: str = "fan") -> tuple[int, int]:
    """Tickets and live reservations of a holder, as Redis counts them."""
    fields = [f"t:{holder}", f"l:{holder}"]
    tickets, live = await inventory.state.redis_stock.redis.hmget(Keys.of(EVENT).usage, fields)
    return int(tickets or 0), len(live.split(b",")) if live else 0


async def end_sessions(inventory: Inventory, *holders: str, leaving: bool = False) -> list[Any]:
    sessions = [{"jti": f"jti-{holder}", "holder": holder, "expires_at_ms": 9**14} for holder in holders]
    request = {"event_id": EVENT, "leaving": leaving, "sessions": sessions}
    return list((await inventory.post_internal("/sessions/end", request))["sessions"])


async def rebuild(inventory: Inventory) -> None:
    """Redis loses everything, and the monitor rebuilds the stock."""
    await inventory.state.redis_stock.redis.flushall()
    await inventory.state.redis_monitor.check()


async def is_clean(inventory: Inventory) -> bool:
    """Whether the invariants hold a second later; until then due holds expire and drift is corrected."""
    inventory.travel(1_000)
    return await inventory.violations() == []


async def reconcile(inventory: Inventory, reconciler: Reconciler | None = None, *, times: int = 2) -> ReconcilePass:
    """Reconciles `times` times, six seconds apart; returns the last result."""
    state = inventory.state
    reconciler = reconciler or state.reconciler
    at_s = reconciler._clock() + 1000
    reconciler._clock = lambda: at_s
    result = ReconcilePass(differences=0, old=0, corrected=0)
    for _ in range(times):
        result = await reconciler.reconcile(state.catalogue.layout(EVENT))
        at_s += 6
    return result


def second_reconciler(inventory: Inventory) -> Reconciler:
    """The reconciler of another process."""
    state = inventory.state
    return Reconciler(state.db, state.redis_stock, state.catalogue, ready_since_s={}, interval_s=60)
