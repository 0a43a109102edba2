"""Forged, foreign and missing credentials are refused, and what they were tried on can still be bought.

`onsale audit` compares confirmed orders in orders with sold reservations in inventory.

An event file is read back as operators have changed it, and applying what was read changes nothing.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from features.stock.rules import EventAllotments
from onsale import event_files
from onsale.client.fan_documents import ReserveBody
from shared.contracts.file_parts import part_of
from shared.security.tokens import QueueToken, QueueTokens, development_keys
from tests.support.running.suite import RunningSuite, bearer, fan_of, problem, refusal
from tests.support.wait import wait_until


async def test_forged_foreign_and_missing_credentials_are_refused(suite: RunningSuite) -> None:
    event_id, other_event_id = await suite.open_event(), await suite.open_event()
    forged = QueueTokens(development_keys("queue-token")).sign(QueueToken(event_id, 1, 0, 1, "me", 0))
    async with suite.browser() as browser:
        fan, stranger = await fan_of(browser, event_id).come_in(), await fan_of(browser, other_event_id).come_in()
        status = f"/events/{event_id}/queue/status"
        selection: ReserveBody = {"seats": ["A-1-1"]}
        path = f"/events/{event_id}/reservations"
        assert problem(await browser.get(status)) == (401, "no-credential")
        assert problem(await browser.get(status, headers=bearer(forged))) == (401, "bad-credential")
        assert problem(await browser.get(status, headers=bearer(stranger.queue_token))) == (403, "wrong-event")
        assert problem(await browser.post(path, json=selection)) == (401, "no-credential")
        assert problem(await browser.post(path, json=selection, headers=bearer("a.b.c"))) == (401, "bad-credential")
        assert problem(await browser.post(path, json=selection, headers=bearer(stranger.admission))) == (
            403,
            "wrong-event",
        )
        hold = await fan.hold(selection)
        fans_hold = f"{path}/{hold['reservation_id']}"
        thief = await fan_of(browser, event_id).come_in()
        assert problem(await browser.get(fans_hold, headers=bearer(thief.admission))) == (404, "unknown-reservation")
        assert problem(await browser.delete(fans_hold, headers=bearer(thief.admission))) == (404, "unknown-reservation")
        assert await refusal(thief.order(hold)) == (404, "unknown-reservation")
        order = await fan.order(hold)
        order_answer = await browser.get(f"/orders/{order['reference']}", headers=bearer(thief.admission))
        assert order_answer.status_code in {401, 403, 404}
        assert (await fan.settled(order))["status"] == "confirmed"


async def test_a_confirmed_order_without_a_sold_reservation_fails_one_invariant_only(suite: RunningSuite) -> None:
    """Each database is consistent by itself, as after a restore of one of them; only the comparison finds the loss."""
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"

    async def agrees() -> bool:
        return await suite.audit(event_id) == []

    await wait_until(agrees)  # the slot of the place that bought is freed in Redis a moment later
    database = await asyncpg.connect(suite.engines["postgres_url"])
    try:
        undo_sale = "UPDATE inventory.reservation SET confirmed_at = NULL WHERE event_id = $1 AND status = 'confirmed'"
        assert await database.execute(undo_sale, event_id) == "UPDATE 1"
    finally:
        await database.close()
    assert [broken.invariant for broken in await suite.audit(event_id)] == ["7 confirmed orders are sold"]


Operate = Callable[..., Awaitable[str]]


async def test_the_file_shows_what_operators_changed_and_says_what_it_leaves_out(
    suite: RunningSuite, operate: Operate, tmp_path: Path
) -> None:
    event_id = await suite.open_event(fees=[{"name": "Service", "percent": "2.5"}])
    path = f"/admin/inventory/events/{event_id}"
    kept = {"name": "Kept", "kind": "house", "ga": [{"section_id": "GA1", "quantity": 5}]}
    async with suite.operator() as operator:
        assert (await operator.patch(f"/admin/events/{event_id}/room", json={"rate_per_s": 7})).is_success
        assert (await operator.post(f"{path}/sections/GA1/resize", json={"capacity": 70})).is_success
        for name in ("kept", "opened"):
            assert (await operator.put(f"{path}/allotments/{name}", json=kept)).is_success
        assert (await operator.post(f"{path}/allotments/opened/open", json={})).is_success
    shown = await operate("events", "show", event_id)
    assert "access codes (only their hashes are kept)" in shown
    file = tmp_path / "shown.yaml"
    file.write_text(shown)
    event = event_files.read(file)
    assert event.room.rate_per_s == 7
    assert event.sections[1].capacity == 70
    kept_aside = [one.allotment_id for one in part_of(event, EventAllotments).allotments]
    assert kept_aside == ["kept"], "places of an open allotment are on sale"
    assert f"{event_id}: would change nothing" in await operate("events", "apply", str(file), "--dry-run")
