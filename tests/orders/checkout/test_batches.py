"""Orders written together share a statement, not a fate; batching keeps the number of statements low."""

import asyncio
import json
import time
from collections import Counter
from contextlib import asynccontextmanager

from sqlalchemy import event, text

from onsale.sandbox.webhooks import sign
from services.orders.checkout.create_order import write_tombstone
from services.orders.order import leases
from services.orders.order.updates import Lease, LeaseLost, OrderUpdate, Written, write
from tests.orders.shop import reference_of
from tests.support.wait import wait_until


async def test_a_change_that_cannot_be_written_does_not_take_others_with_it(processes):
    """Three orders in one batch: one breaks a constraint, one has lost its lease, one is written."""
    shop = await processes.open(workers=1, sweep_s=10)
    db = shop.app.state.deps.repository.db
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    references = [await shop.order() for _ in range(3)]
    await wait_until(lambda: not shop.app.state.deps.worker_pool.queue.rows)
    await shop.run("UPDATE orders.\"order\" SET lease = 'me', lease_until = now() + interval '1 hour'")
    broken, lost, good = [await shop.row(reference) for reference in references]
    lease = {seen.reference: Lease(seen.reference, "me", 3600.0) for seen in (broken, lost, good)}
    changes = [
        OrderUpdate(lease[broken.reference], broken).add_money_entry(
            "charge", "sandbox", amount_minor=-1, currency="EUR", charge_ref="c", provider_ref="c"
        ),
        OrderUpdate(Lease(lost.reference, "somebody else", 3600.0), lost).set_order(charge_ref="never"),
        OrderUpdate(lease[good.reference], good).set_order(charge_ref="written"),
    ]
    outcomes = await write(db, changes)
    assert "ck_money_entry_amount" in str(outcomes[0])
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(outcomes[2], Written)
    now = await leases.read_many(db, references)
    assert [now[reference].charge_ref for reference in references] == [None, None, "written"]


async def test_an_order_that_cannot_be_placed_does_not_take_others_with_it(shop):
    """One of the batch has a tombstone: only its own key stays free."""
    holds = {key: shop.holds.hold() for key in ("buried", "one", "two")}
    assert await write_tombstone(shop.app.state.deps.db, reference_of(shop, "buried"))
    answers = await asyncio.gather(*(shop.post(shop.body(hold), key=key) for key, hold in holds.items()))
    assert [answer.status_code for answer in answers] == [409, 202, 202]
    assert shop.holds.reservations[holds["buried"]].status == "pending_payment"
    for answer in answers[1:]:
        await shop.settled(answer.json()["reference"], "confirmed")
    again = await shop.post(shop.body(holds["buried"]), key="buried")
    assert again.json()["type"] == "/problems/reservation-taken"


async def test_a_success_that_is_known_is_not_asked_about_and_any_other_is(processes):
    shop = await processes.open(post_end_sync_delays_s=(60.0,), provider_sync_interval_s=60.0)
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    [charge] = await shop.charges(reference)
    version = (await shop.row(reference)).version
    for number, (charge_ref, asks) in enumerate(((charge["id"], False), ("ch_unheard_of", True))):
        note = {"id": f"evt_{number}", "type": "charge.succeeded"}
        body = json.dumps({**note, "data": {"charge": {"id": charge_ref, "reference": reference}}}).encode()
        secret = shop.settings.sandbox_webhook_secrets[0]
        headers = {"sandbox-signature": sign(body, secret=secret, at_s=int(time.time()))}
        assert (await shop.http.post("/webhooks/sandbox", content=body, headers=headers)).status_code == 200
        await wait_until(lambda: _nothing_waits(shop))
        await wait_until(lambda: not shop.app.state.deps.worker_pool.queue.rows)
        if asks:
            await wait_until(lambda: _is_newer(shop, reference, version))
        else:
            assert (await shop.row(reference)).version == version


async def test_fifty_purchases_at_once_cost_few_statements_each(shop):
    """From the request to `confirmed`: concurrent orders share most statements."""
    async with _counted(shop) as sent:
        orders = (shop.post(shop.body(shop.holds.hold()), key=f"k{n}") for n in range(50))
        references = [answer.json()["reference"] for answer in await asyncio.gather(*orders)]
        await wait_until(lambda: _all_confirmed(shop, references), interval_s=0.1)
    assert sent.total() < 50 * 5, sent
    assert len({reference for _, reference, _ in await shop.entries()}) == 50


async def test_a_purchase_is_written_once_after_it_was_placed(shop):
    """Its attempt becomes unknown with the lease; money and sale are one update."""
    async with _counted(shop) as sent:
        reference = await shop.order()
        await wait_until(lambda: _all_confirmed(shop, [reference]), interval_s=0.1)
    assert sent["-- Writes the"] == 1, sent


@asynccontextmanager
async def _counted(shop):
    """How often each statement is sent, by its first words, once earlier work is done."""
    await wait_until(lambda: not shop.app.state.deps.worker_pool.queue.rows)
    sent: Counter[str] = Counter()
    db = shop.app.state.deps.db.sync_engine

    def count(connection, cursor, statement, parameters, context, executemany):
        sent[" ".join(statement.split()[:3])] += 1

    event.listen(db, "before_cursor_execute", count)
    try:
        yield sent
    finally:
        event.remove(db, "before_cursor_execute", count)


async def _all_confirmed(shop, references):
    found = await leases.read_many(shop.app.state.deps.repository.db, references)
    return {found[reference].status for reference in references} == {"confirmed"}


async def _nothing_waits(shop):
    async with shop.app.state.deps.db.connect() as connection:
        waiting = text("SELECT count(*) FROM orders.webhook_inbox WHERE applied_at IS NULL")
        return await connection.scalar(waiting) == 0


async def _is_newer(shop, reference, version):
    return (await shop.row(reference)).version > version
