"""Some of what was bought comes back: the named tickets, all or none, once; the rest stays sold."""

import asyncio
from typing import Any

from tests.inventory.conftest import Inventory
from tests.inventory.selling import sold, sql, status

UNKNOWN = "0" * 32


async def give_back(
    inventory: Inventory, reservation_id: str, *seats: str, ga: int = 0, return_id: str = "R.1",
    reference: str = "order-one", blocked: bool = False,
) -> str:  # fmt: skip
    asked = {
        "return_id": return_id, "reservation_id": reservation_id, "order_reference": reference, "seats": list(seats),
        "ga": [{"section_id": "GA1", "quantity": ga}] if ga else [], "reason": "refunded", "keep_blocked": blocked,
    }  # fmt: skip
    return str((await inventory.ask("/reservations/ticket-returns", asked))["outcome"])


async def test_only_the_named_tickets_are_free_again_once_however_often_it_is_told(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=3)
    words = await asyncio.gather(*(give_back(still, mine, "A-1-1", ga=2) for _ in range(5)))
    assert (set(words), await status(still, mine)) == ({"done"}, "confirmed")
    assert (await still.left("A"), await still.left("GA1")) == ((14, 0), (19, 0))
    assert (await still.reserve("other", seats=["A-1-1"])).status_code == 201
    assert (await still.reserve("third", seats=["A-1-2"])).status_code == 409
    told = await sql(still, "SELECT id FROM inventory.outbox WHERE body ->> 'type' = 'reservation.returned'")
    assert len(told) == 1
    assert await still.broken() == []
    await still.state.redis_stock.redis.flushall()
    await still.state.redis_monitor.check()
    assert await still.left("GA1") == (19, 0)
    assert await still.broken() == []


async def test_the_last_ticket_ends_the_reservation(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    assert await give_back(still, mine, ga=2) == "done"
    assert await give_back(still, mine, "A-1-1", return_id="R.2") == "done"
    assert await status(still, mine) == "returned"
    assert await give_back(still, mine, "A-1-1", return_id="R.2") == "done"
    assert await give_back(still, mine, "A-1-1", return_id="R.3") == "ended"
    assert (await still.left("A"), await still.left("GA1")) == ((15, 0), (20, 0))
    assert await still.broken(at_rest=True) == []


async def test_all_of_them_or_none(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    await sold(still, "two", seats=["A-1-3"])
    assert await give_back(still, mine, "A-1-1", "A-1-3") == "ended", "one is another's"
    assert await give_back(still, mine, "A-1-1", ga=3) == "ended", "more than it has"
    assert await give_back(still, mine, "A-1-1", "A-1-1") == "ended", "twice the same"
    assert await give_back(still, mine) == "ended", "nothing is named"
    assert await give_back(still, mine, "A-1-1", reference="order-two") == "not-owner"
    assert await give_back(still, UNKNOWN, "A-1-1") == "unknown"
    assert (await still.left("A"), await still.left("GA1")) == ((12, 0), (18, 0))
    assert await still.broken() == []


async def test_kept_blocked_they_do_not_go_on_sale(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    assert await give_back(still, mine, "A-1-1", ga=1, blocked=True) == "done"
    assert (await still.left("A"), await still.left("GA1")) == ((13, 0), (18, 0))
    assert (await still.reserve("other", seats=["A-1-1"])).status_code == 409
    assert await still.broken() == []


async def test_a_sale_redis_missed_gives_back_all_the_same(still: Inventory, monkeypatch: Any) -> None:
    """Redis still holds what the database sold: it hears of the sale first, then of the return."""

    async def lost(*_: Any, **__: Any) -> None:
        return

    with monkeypatch.context() as deaf:
        deaf.setattr(still.state.redis_stock, "confirm", lost)
        mine = await sold(still, "one", seats=["A-1-1", "A-1-2"])
    assert await give_back(still, mine, "A-1-1") == "done"
    assert await still.left("A") == (14, 0)
    assert await still.broken() == []
