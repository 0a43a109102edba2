"""Actions shared by the inventory tests: sales, blocks, reports, statements in SQL, ends of sessions, reconciliation,
removed guards and paused calls.
"""

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy import TextClause, text

from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import load_script
from services.inventory.reservations import payment
from shared.contracts.admin.inventory import ReconcilePass
from shared.redis.client import Script
from tests.inventory.conftest import EVENT, Inventory, event_file


async def sell(inventory: Inventory, holder: str, **body: Any) -> str:
    """A reservation that `order-<holder>` has bought."""
    reservation_id = await inventory.hold(holder, **body)
    await buy(inventory, reservation_id, f"order-{holder}")
    return reservation_id


async def buy(inventory: Inventory, reservation_id: str, order_reference: str) -> None:
    for verb in ("begin-payment", "confirm"):
        assert (await inventory.step(verb, reservation_id, order_reference))["outcome"] == "done"


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


async def put_large_event(inventory: Inventory, *, capacity: int) -> None:
    """An event without a limit per customer and with `capacity` GA tickets."""
    file = event_file(tickets_per_customer=0)
    file["sections"][2]["capacity"] = capacity
    await inventory.put(file)
    await inventory.state.redis_monitor.check()


async def reconcile(
    inventory: Inventory, reconciler: Reconciler | None = None, *, times: int = 2, after_s: float = 1000
) -> ReconcilePass:
    """Reconciles `after_s` later, `times` times, six seconds apart; returns the last result."""
    state = inventory.state
    reconciler = reconciler or state.reconciler
    at_s = reconciler._clock() + after_s - 6
    reconciler._clock = lambda: at_s
    result = ReconcilePass(differences=0, old=0, corrected=0)
    for _ in range(times):
        at_s += 6
        result = await reconciler.reconcile(state.catalogue.layout(EVENT))
    return result


def second_reconciler(inventory: Inventory) -> Reconciler:
    """The reconciler of another process."""
    state = inventory.state
    other = Reconciler(state.db, state.redis_stock, state.catalogue, ready_since_s={}, interval_s=60)
    other.oversell_policy = state.reconciler.oversell_policy
    return other


class NoSuchGuard(Exception):
    """The text that a test takes out is not in the script or statement."""


def _without(source: str, guard: str, replacement: str) -> str:
    if guard not in source:
        raise NoSuchGuard(guard)
    return source.replace(guard, replacement)


def replace_in_sql(patch: pytest.MonkeyPatch, module: Any, name: str, guard: str, replacement: str = "") -> None:
    """Takes a guard out of a statement of the module."""
    statement = getattr(module, name)
    source = statement.text if isinstance(statement, TextClause) else statement
    changed = _without(source, guard, replacement)
    patch.setattr(module, name, text(changed) if isinstance(statement, TextClause) else changed)


def count_customers_slowly(patch: pytest.MonkeyPatch) -> None:
    """Concurrent payments of one customer count while none of them has been written, unless the customer is locked."""
    slowly = "WHERE (SELECT true FROM pg_sleep(0.3)) AND l.customer IS NOT NULL"
    replace_in_sql(patch, payment, "BEGIN_PAYMENTS", "WHERE l.customer IS NOT NULL", slowly)


def replace_in_script(inventory: Inventory, verb: str, guard: str, replacement: str = "") -> None:
    """Takes a guard out of a script of this inventory."""
    source = load_script(verb).source
    script = Script(f"{verb} without a guard", _without(source, guard, replacement))
    inventory.state.redis_stock.scripts[verb] = script


def pause_after(patch: pytest.MonkeyPatch, owner: Any, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """The next call does its work, sets the first event, and returns only when the second one is set."""
    call, reached, resume = getattr(owner, name), asyncio.Event(), asyncio.Event()

    async def paused(*args: Any, **named: Any) -> Any:
        answer = await call(*args, **named)
        if not reached.is_set():
            reached.set()
            await resume.wait()
        return answer

    patch.setattr(owner, name, paused)
    return reached, resume
