"""Returns of some tickets of a sale: exactly the named tickets, all or none, once; the rest stays sold."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from tests.inventory.actions import rebuild, sell, sql, status
from tests.inventory.conftest import Inventory

UNKNOWN_ID = "0" * 32


async def return_tickets(
    inventory: Inventory, reservation_id: str, *seats: str, ga: int = 0, return_id: str = "R.1",
    reference: str = "order-one", blocked: bool = False,
) -> str:  # fmt: skip
    request = {
        "return_id": return_id, "reservation_id": reservation_id, "order_reference": reference, "seats": list(seats),
        "ga": [{"section_id": "GA1", "quantity": ga}] if ga else [], "reason": "refunded", "keep_blocked": blocked,
    }  # fmt: skip
    return str((await inventory.post_internal("/reservations/ticket-returns", request))["outcome"])


async def test_repeated_returns_release_only_the_named_tickets_once(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=3)
    outcomes = await asyncio.gather(*(return_tickets(manual, bought, "A-1-1", ga=2) for _ in range(5)))
    assert (set(outcomes), await status(manual, bought)) == ({"done"}, "confirmed")
    assert (await manual.counts("A"), await manual.counts("GA1")) == ((14, 0), (19, 0))
    assert (await manual.reserve("other", seats=["A-1-1"])).status_code == 201
    assert (await manual.reserve("third", seats=["A-1-2"])).status_code == 409
    events = await sql(manual, "SELECT id FROM inventory.outbox WHERE body ->> 'type' = 'reservation.returned'")
    assert len(events) == 1
    assert await manual.violations() == []
    await rebuild(manual)
    assert await manual.counts("GA1") == (19, 0)
    assert await manual.violations() == []


async def test_the_return_of_the_last_ticket_ends_the_reservation(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    assert await return_tickets(manual, bought, ga=2) == "done"
    assert await return_tickets(manual, bought, "A-1-1", return_id="R.2") == "done"
    assert await status(manual, bought) == "returned"
    assert await return_tickets(manual, bought, "A-1-1", return_id="R.2") == "done"
    assert await return_tickets(manual, bought, "A-1-1", return_id="R.3") == "ended"
    assert (await manual.counts("A"), await manual.counts("GA1")) == ((15, 0), (20, 0))
    assert await manual.violations(at_rest=True) == []


async def test_a_return_is_refused_whole_if_one_ticket_cannot_be_returned(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    await sell(manual, "two", seats=["A-1-3"])
    assert await return_tickets(manual, bought, "A-1-1", "A-1-3") == "ended", "one seat belongs to another sale"
    assert await return_tickets(manual, bought, "A-1-1", ga=3) == "ended", "more tickets than the sale has"
    assert await return_tickets(manual, bought, "A-1-1", "A-1-1") == "ended", "the same seat twice"
    assert await return_tickets(manual, bought) == "ended", "no ticket is named"
    assert await return_tickets(manual, bought, "A-1-1", reference="order-two") == "not-owner"
    assert await return_tickets(manual, UNKNOWN_ID, "A-1-1") == "unknown"
    assert (await manual.counts("A"), await manual.counts("GA1")) == ((12, 0), (18, 0))
    assert await manual.violations() == []


async def test_tickets_returned_as_blocked_do_not_go_on_sale(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    assert await return_tickets(manual, bought, "A-1-1", ga=1, blocked=True) == "done"
    assert (await manual.counts("A"), await manual.counts("GA1")) == ((13, 0), (18, 0))
    assert (await manual.reserve("other", seats=["A-1-1"])).status_code == 409
    assert await manual.violations() == []


async def test_tickets_of_a_sale_that_redis_missed_are_returned(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis still has a hold where the database has a sale: it applies the sale first, then the return."""
    with monkeypatch.context() as lossy:
        lossy.setattr(manual.state.redis_stock, "confirm", AsyncMock())
        bought = await sell(manual, "one", seats=["A-1-1", "A-1-2"])
    assert await return_tickets(manual, bought, "A-1-1") == "done"
    assert await manual.counts("A") == (14, 0)
    assert await manual.violations() == []
