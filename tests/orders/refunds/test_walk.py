"""How many files of the product an order and a refund cross, from the socket to the last write: those that each of some
crosses, as loops and webhooks of others run meanwhile.

Whoever looks for the cause of a failed purchase opens these files. A failure prints them all.
"""

from functools import partial

from tests.orders.shop import Shop
from tests.support.wait import wait_until
from tests.support.walk import walked

ORDER_MAX, REFUND_MAX, TRIES = 45, 34, 4
STATUS = 'SELECT status FROM orders."order" WHERE reference = :reference'
REFUNDED = "SELECT count(*) FROM orders.refund WHERE reference = :reference AND status = 'succeeded'"


async def test_an_order_crosses_few_files(shop: Shop) -> None:
    reservation_ids = [await shop.inventory.hold() for _ in range(TRIES)]
    await sold(shop)  # what happens once in a process is not on the way
    ways = list[set[str]]()
    for reservation_id in reservation_ids:
        with walked() as files:
            await sold(shop, reservation_id)
        ways.append(files)
    assert len(set.intersection(*ways)) <= ORDER_MAX, listed(set.intersection(*ways))


async def test_a_refund_crosses_few_files(shop: Shop) -> None:
    reference = await sold(shop)
    ways = list[set[str]]()
    for n in range(TRIES):
        with walked() as files:
            answer = await shop.admin_post(f"{reference}/refund", amount_minor=500, key=f"key-{n}")
            assert answer.status_code == 202, answer.text
            await wait_until(partial(is_refunded, shop, reference, times=n + 1))
        ways.append(files)
    assert len(set.intersection(*ways)) <= REFUND_MAX, listed(set.intersection(*ways))


async def sold(shop: Shop, reservation_id: str | None = None) -> str:
    reference = await shop.order_of(reservation_id or await shop.inventory.hold())

    async def is_sold() -> bool:
        return bool(await shop.scalar(STATUS, reference=reference) == "confirmed")

    await wait_until(is_sold)
    return reference


async def is_refunded(shop: Shop, reference: str, *, times: int) -> bool:
    return bool(await shop.scalar(REFUNDED, reference=reference) == times)


def listed(files: set[str]) -> str:
    return "\n".join([f"{len(files)} files:", *sorted(files)])
