"""Orders are written in batches: few statements, and one that fails does not affect the others."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import REGISTRY
from sqlalchemy import event

from services.orders.order import leases
from services.orders.order.payment_status import write_tombstone
from services.orders.order.updates import Lease, LeaseLost, OrderUpdate, Written, write
from tests.orders.shop import reference_of, succeeded_webhook
from tests.support.wait import wait_until


async def test_an_update_that_fails_does_not_fail_others_of_its_batch(processes):
    """Three orders in one batch: one breaks a constraint, one has lost its lease, one is written."""
    shop = await processes.open(workers=1, sweep_s=10)
    db = shop.state.repository.db
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    references = [await shop.order() for _ in range(3)]
    await shop.wait_until_idle()
    await shop.run("UPDATE orders.\"order\" SET lease = 'me', lease_until = now() + interval '1 hour'")
    broken, lost, good = [await shop.row(reference) for reference in references]
    lease = {order.reference: Lease(order.reference, "me", 3600.0) for order in (broken, lost, good)}
    updates = [
        OrderUpdate(lease[broken.reference], broken).add_money_entry(
            "charge", "sandbox", amount_minor=-1, currency="EUR", charge_ref="c", provider_ref="c"
        ),
        OrderUpdate(Lease(lost.reference, "somebody else", 3600.0), lost).set_order(charge_ref="never"),
        OrderUpdate(lease[good.reference], good).set_order(charge_ref="written"),
    ]
    outcomes = await write(db, updates)
    assert "ck_money_entry_amount" in str(outcomes[0])
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(outcomes[2], Written)
    orders = await leases.read_many(db, references)
    assert [orders[reference].charge_ref for reference in references] == [None, None, "written"]


async def test_an_order_that_fails_does_not_fail_others_of_its_batch(shop):
    """One of the batch has a tombstone: the others are created."""
    holds = {key: await shop.inventory.hold() for key in ("tombstoned", "one", "two")}
    assert await write_tombstone(shop.state.db, reference_of(shop, "tombstoned"))
    answers = await asyncio.gather(*(shop.post(shop.body(hold), key=key) for key, hold in holds.items()))
    assert [answer.status_code for answer in answers] == [409, 202, 202]
    assert await shop.inventory.status(holds["tombstoned"]) == "pending_payment"
    for answer in answers[1:]:
        await shop.wait_until_settled(answer.json()["reference"], "confirmed")
    again = await shop.post(shop.body(holds["tombstoned"]), key="tombstoned")
    assert again.json()["type"] == "/problems/reservation-taken"


async def test_one_that_fails_costs_a_large_batch_few_statements_more(shop):
    """Everybody else in the batch would wait for them."""
    assert await write_tombstone(shop.state.db, reference_of(shop, "tombstoned"))
    keys = [*(f"k{n}" for n in range(39)), "tombstoned"]
    posts = [shop.post(shop.body(await shop.inventory.hold()), key=key) for key in keys]
    async with _counted(shop) as sent:
        answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers] == [202] * 39 + [409]
    assert sent["-- Inserts orders"] < 20, sent
    await shop.wait_until_idle()
    orders = await leases.read_many(shop.state.db, [answer.json()["reference"] for answer in answers[:-1]])
    ended = Lease("none", "nobody", 1.0)
    updates = [OrderUpdate(replace(ended, reference=reference), order) for reference, order in orders.items()]
    async with _counted(shop) as sent:
        outcomes = await write(shop.state.repository.db, [*updates, updates[0]])
    assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 40
    assert sent["-- Writes the"] < 20, sent


async def test_a_webhook_causes_a_provider_sync_only_if_its_charge_is_unknown(processes):
    shop = await processes.open(post_end_sync_delays_s=(60.0,), provider_sync_interval_s=60.0)
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    [charge] = await shop.charges(reference)
    before = _syncs()
    for number, (charge_ref, syncs) in enumerate(((charge["id"], False), ("ch_unknown", True))):
        await shop.deliver(succeeded_webhook(f"evt_{number}", id=charge_ref, reference=reference))
        await wait_until(lambda: _all_applied(shop))
        if syncs:
            await wait_until(lambda: _syncs() > before)
        await shop.wait_until_idle()
        assert _syncs() - before == int(syncs)


async def test_fifty_concurrent_purchases_need_few_statements_each(shop):
    """From the request to `confirmed`: concurrent orders share most statements."""
    orders = [shop.post(shop.body(await shop.inventory.hold()), key=f"k{n}") for n in range(50)]
    async with _counted(shop) as sent:
        references = [answer.json()["reference"] for answer in await asyncio.gather(*orders)]
        await wait_until(lambda: _all_confirmed(shop, references), interval_s=0.1)
    assert sent.total() < 50 * 5, sent
    assert len({reference for _, reference, _ in await shop.money_entries()}) == 50


async def test_an_order_is_updated_once_after_it_was_created(shop):
    """The attempt becomes unknown together with the lease; money and sale are one update."""
    async with _counted(shop) as sent:
        reference = await shop.order()
        await wait_until(lambda: _all_confirmed(shop, [reference]), interval_s=0.1)
    assert sent["-- Writes the"] == 1, sent


@asynccontextmanager
async def _counted(shop):
    """Counts each statement by its first words, once earlier orders are processed."""
    await shop.wait_until_idle()
    sent: Counter[str] = Counter()
    db = shop.state.db.sync_engine

    def count(connection, cursor, statement, parameters, context, executemany):
        sent[" ".join(statement.split()[:3])] += 1

    event.listen(db, "before_cursor_execute", count)
    try:
        yield sent
    finally:
        event.remove(db, "before_cursor_execute", count)


async def _all_confirmed(shop, references):
    found = await leases.read_many(shop.state.repository.db, references)
    return {found[reference].status for reference in references} == {"confirmed"}


async def _all_applied(shop):
    return await shop.scalar("SELECT count(*) FROM orders.webhook_inbox WHERE applied_at IS NULL") == 0


def _syncs():
    """How often this process has read an order's charges from a provider."""
    return REGISTRY.get_sample_value("orders_steps_total", {"step": "sync_provider"})
