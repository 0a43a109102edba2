"""Orders that were sold or ended are compared with the provider again: work in routine, for which nobody waits."""

from typing import Any

from sqlalchemy import select

from services.orders.payments.webhook_inbox import apply_webhooks
from services.orders.tables import order
from tests.orders.manual_orders import ManualShop

AFTER_A_MINUTE_S, AFTER_AN_HOUR_S = 61, 3600


async def row(manual: ManualShop, reference: str) -> Any:
    async with manual.state.db.connect() as connection:
        return (await connection.execute(select(order).where(order.c.reference == reference))).one()


def failing(manual: ManualShop, word: str | None) -> list[str]:
    """The calls of the provider from now on, each of which fails so."""
    calls: list[str] = []

    def fault(call: str, _: str) -> str | None:
        calls.append(call)
        return word

    manual.connection.fault = fault
    return calls


async def test_a_sold_order_is_compared_in_routine_and_nothing_new_changes_nothing(manual: ManualShop) -> None:
    reference = await manual.order()
    assert not (await row(manual, reference)).routine, "its buyer waits"
    await manual.work()
    sold = await row(manual, reference)
    assert (sold.status, sold.routine) == ("confirmed", True)
    calls = failing(manual, None)
    await manual.travel(AFTER_A_MINUTE_S)
    await manual.work()
    compared = await row(manual, reference)
    assert calls == ["GET charges"]
    assert (compared.version, compared.changed_at) == (sold.version, sold.changed_at)
    assert (compared.routine, compared.lease) == (True, None)
    await manual.travel(AFTER_AN_HOUR_S)
    await manual.work()
    assert calls == ["GET charges"] * 2
    assert (await row(manual, reference)).due_at is None


async def test_a_comparison_that_fails_stays_routine_until_a_webhook_comes(manual: ManualShop) -> None:
    reference = await manual.order()
    await manual.work()
    failing(manual, "unreachable")
    await manual.travel(AFTER_A_MINUTE_S)
    await manual.work()
    failed = await row(manual, reference)
    assert (failed.errors, failed.routine) == (1, True)
    [webhook] = manual.outgoing_webhooks.webhooks
    await manual.deliver(webhook.replace(b"ch_", b"ch_other_"))
    await apply_webhooks(manual.state.repository.db)
    assert not (await row(manual, reference)).routine, "something is new at the provider"
    await manual.work()
    woken = await row(manual, reference)
    assert (woken.sync_requested, woken.routine) == (True, False)
    failing(manual, None)
    await manual.travel(AFTER_A_MINUTE_S)
    await manual.work()
    assert (await row(manual, reference)).sync_requested is False
