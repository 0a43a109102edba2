"""Orders are written in batches: few statements, and one that is refused or fails does not affect the others."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import REGISTRY
from sqlalchemy import event

from services.orders.checkout import checkout
from services.orders.model.order import OpenOrder, Order
from services.orders.model.update import OrderUpdate
from services.orders.store.store import NotWritten, read_many, save, write_tombstone
from tests.orders.priced_event import open_sale
from tests.orders.shop import reference_of, succeeded_webhook
from tests.support.wait import wait_until


async def test_an_update_that_fails_does_not_fail_others_of_its_batch(processes):
    """Three orders in one batch: one breaks a constraint, one is another process' by now, one is written."""
    shop = await processes.open(inline_slots_max=0)
    owner = shop.state.store.owner
    with shop.busy_workers():
        references = [await shop.order() for _ in range(3)]
        broken, lost, good = [await shop.row(reference) for reference in references]
        updates = [
            OrderUpdate(broken, OpenOrder(broken.reference, owner, 0)).add_row(
                "money",
                kind="charge",
                provider="sandbox",
                amount_minor=-1,
                currency="EUR",
                charge_ref="c",
                provider_ref="c",
            ),
            OrderUpdate(lost, OpenOrder(lost.reference, "somebody else", 0)).set_order(charge_ref="never"),
            OrderUpdate(good, OpenOrder(good.reference, owner, 0)).set_order(charge_ref="written"),
        ]
        outcomes = await save(shop.state.store.db, updates)
        assert "ck_money_entry_amount" in str(outcomes[0])
        assert isinstance(outcomes[1], NotWritten)
        assert isinstance(outcomes[2], Order)
        orders = await read_many(shop.state.db, references)
        assert [orders[reference].charge_ref for reference in references] == [None, None, "written"]


async def test_an_order_that_is_refused_does_not_fail_others_of_its_batch(shop, monkeypatch):
    """One of the batch has a tombstone: the others are created, and nothing is written anew for it."""
    monkeypatch.setattr(checkout, "by_halves", _never)
    holds = {key: await shop.inventory.hold() for key in ("tombstoned", "one", "two")}
    assert await write_tombstone(shop.state.db, reference_of(shop, holds["tombstoned"], "tombstoned"))
    answers = await asyncio.gather(*(shop.post(shop.body(hold), key=key) for key, hold in holds.items()))
    assert [answer.status_code for answer in answers] == [409, 202, 202]
    assert await shop.inventory.status(holds["tombstoned"]) == "pending_payment"
    for answer in answers[1:]:
        await shop.wait_until_settled(answer.json()["reference"], "confirmed")
    again = await shop.post(shop.body(holds["tombstoned"]), key="tombstoned")
    assert again.json()["type"] == "/problems/reservation-taken"


async def test_duplicates_of_a_batch_answer_for_themselves_in_one_statement(shop, monkeypatch):
    """The same key, reservation or reference again, in the batch or before it: none is written, all others are."""
    monkeypatch.setattr(checkout, "by_halves", _never)
    writer = shop.state.checkout.writer
    drafts, insert = [], writer.insert

    async def keep(draft):
        drafts.append(draft)
        return await insert(draft)

    monkeypatch.setattr(writer, "insert", keep)
    earlier = await shop.order()
    [first] = drafts

    def another(reference, key, reservation_id, of=first):
        written = replace(of.order, reference=reference, reservation_id=reservation_id)
        return of._replace(order=written, key_hash=key)

    new, last = another("NEWORDER0001", b"new", "held-1"), another("NEWORDER0002", b"last", "held-2")
    with shop.busy_workers():
        async with _counted(shop) as sent:
            outcomes = await writer._insert_batch([
                first, new, new, another("NEWORDER0003", b"new", "held-3"), another("NEWORDER0004", b"k", "held-1"),
                another(earlier, b"l", "held-4"), last,
            ])  # fmt: skip
        written = [outcome.reference if isinstance(outcome, Order) else None for outcome in outcomes]
        assert written == [None, new.order.reference, None, None, None, None, last.order.reference]
        assert sent["-- Inserts orders,"] == 1, sent
        assert await shop.scalar('SELECT count(*) FROM orders."order"') == 3
        assert {new.order.reference, last.order.reference} <= set(shop.state.worker._held), (
            "by which they are processed"
        )
        await shop.lose(new.order.reference, last.order.reference)
        await shop.run("DELETE FROM orders.open_order WHERE owner = 'silent'")


async def test_a_refused_promo_code_refuses_its_order_alone(shop, monkeypatch):
    monkeypatch.setattr(checkout, "by_halves", _never)
    sale = await open_sale(shop)
    await sale.put_code("ONCE", percent=10, uses_max=1)
    holds = [await sale.hold() for _ in range(8)]
    codes = [*["ONCE"] * 4, *[None] * 4]
    orders = (sale.order(hold, 9000 if code else 10_000, code) for hold, code in zip(holds, codes, strict=True))
    async with _counted(shop) as sent:
        answers = await asyncio.gather(*orders)
    assert Counter(answer.status_code for answer in answers) == {202: 5, 422: 3}
    assert {answer.json()["reason"] for answer in answers if answer.status_code == 422} == {"used-up"}
    assert sent["-- Inserts orders,"] <= len(answers), sent
    assert await sale.uses("ONCE") == 1
    for hold, answer in zip(holds, answers, strict=True):
        if answer.status_code == 422:
            assert await shop.inventory.status(hold) == "pending_payment", "its hold is as before"
        else:
            await sale.wait_for_status(answer.json()["reference"], "confirmed")


async def test_an_update_that_is_not_written_costs_a_large_batch_few_statements_more(shop):
    """Everybody else in the batch would wait for them."""
    orders = [await shop.post(shop.body(await shop.inventory.hold()), key=f"k{n}") for n in range(40)]
    await shop.wait_until_idle()
    found = await read_many(shop.state.db, [answer.json()["reference"] for answer in orders])
    updates = [OrderUpdate(order, OpenOrder(reference, "nobody", 0)) for reference, order in found.items()]
    async with _counted(shop) as sent:
        outcomes = await save(shop.state.store.db, updates)
    assert ([type(outcome) for outcome in outcomes], sent["-- Writes the"]) == ([NotWritten] * 40, 1)
    async with _counted(shop) as sent:
        outcomes = await save(shop.state.store.db, [*updates, updates[0]])
    assert [type(outcome) for outcome in outcomes] == [NotWritten] * 41
    assert sent["-- Writes the"] < 20, sent


async def test_a_webhook_causes_a_provider_sync_only_if_its_charge_is_unknown(processes):
    shop = await processes.open(provider_sync_interval_s=60.0)
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
    assert sent.total() < 50 * 2, sent
    assert len({reference for _, reference, _ in await shop.money_entries()}) == 50


async def test_an_order_is_updated_once_after_it_was_created(shop):
    """It is born owned, its attempt unknown; money, sale and the end of the work are one update."""
    async with _counted(shop) as sent:
        reference = await shop.order()
        await wait_until(lambda: _all_confirmed(shop, [reference]), interval_s=0.1)
        await shop.wait_until_idle()
    assert (sent["-- Inserts orders,"], sent["-- Writes the"]) == (1, 1), sent
    assert await shop.scalar("SELECT count(*) FROM orders.open_order") == 0


@asynccontextmanager
async def _counted(shop):
    """Counts each statement by its first words, once earlier orders are processed; what sweeps is left out."""
    await shop.wait_until_idle()
    sent: Counter[str] = Counter()
    db = shop.state.db.sync_engine

    def count(connection, cursor, statement, parameters, context, executemany):
        if not statement.startswith("-- Says that"):
            sent[" ".join(statement.split()[:3])] += 1

    event.listen(db, "before_cursor_execute", count)
    try:
        yield sent
    finally:
        event.remove(db, "before_cursor_execute", count)


async def _all_confirmed(shop, references):
    found = await read_many(shop.state.store.db, references)
    return {found[reference].status for reference in references} == {"confirmed"}


async def _all_applied(shop):
    return await shop.scalar("SELECT count(*) FROM orders.webhook_inbox WHERE applied_at IS NULL") == 0


async def _never(*_):
    raise AssertionError("the batch was written again in halves")


def _syncs():
    """How often this process has read an order's charges from a provider."""
    return REGISTRY.get_sample_value("orders_steps_total", {"step": "sync_provider"})
