"""How many files of the product an order and a refund cross, from the socket to the last write.

Whoever looks for the cause of a failed purchase opens these files. A failure prints them all.
"""

from functools import partial

from tests.orders.shop import Shop
from tests.support.wait import wait_until
from tests.support.walk import TRIES, crossed, listed

ORDER_MAX, REFUND_MAX = 44, 32
STATUS = 'SELECT status FROM orders."order" WHERE reference = :reference'
REFUNDED = "SELECT count(*) FROM orders.refund WHERE reference = :reference AND status = 'succeeded'"


async def test_an_order_crosses_few_files(shop: Shop) -> None:
    reservation_ids = [await shop.inventory.hold() for _ in range(TRIES + 1)]
    files = await crossed(lambda n: sold(shop, reservation_ids[n]))
    assert len(files) <= ORDER_MAX, listed(files)


async def test_a_refund_crosses_few_files(shop: Shop) -> None:
    reference = await sold(shop, await shop.inventory.hold())

    async def refund(n: int) -> None:
        answer = await shop.admin_post(f"{reference}/refund", amount_minor=500, key=f"key-{n}")
        assert answer.status_code == 202, answer.text
        await wait_until(partial(is_refunded, shop, reference, times=n + 1))

    files = await crossed(refund)
    assert len(files) <= REFUND_MAX, listed(files)


async def sold(shop: Shop, reservation_id: str) -> str:
    reference = await shop.order_of(reservation_id)

    async def is_sold() -> bool:
        return bool(await shop.scalar(STATUS, reference=reference) == "confirmed")

    await wait_until(is_sold)
    return reference


async def is_refunded(shop: Shop, reference: str, *, times: int) -> bool:
    return bool(await shop.scalar(REFUNDED, reference=reference) == times)
