"""How many files of the product an order and a refund cross, from the socket to the last write; one more if a webhook
comes while they are counted.

Whoever looks for the cause of a failed purchase opens these files. A failure prints them all.
"""

from tests.orders.shop import Shop
from tests.support.wait import wait_until
from tests.support.walk import walked

ORDER_MAX, REFUND_MAX = 46, 33
STATUS = 'SELECT status FROM orders."order" WHERE reference = :reference'


async def test_an_order_and_its_refund_cross_few_files(shop: Shop) -> None:
    earlier = await shop.order()  # what happens once in a process is not on the way
    await shop.wait_for_status(earlier, "confirmed")
    reservation_id = await shop.inventory.hold()
    await shop.order()

    async def has(status: str) -> bool:
        return bool(await shop.scalar(STATUS, reference=reference) == status)

    with walked() as order_files:
        reference = await shop.order_of(reservation_id)
        await wait_until(lambda: has("confirmed"))
    with walked() as refund_files:
        answer = await shop.admin_post(f"{reference}/refund", amount_minor=500, key="a-key")
        assert answer.status_code == 202, answer.text
        await wait_until(lambda: has("partially_refunded"))
    assert len(order_files) <= ORDER_MAX, listed(order_files)
    assert len(refund_files) <= REFUND_MAX, listed(refund_files)


def listed(files: set[str]) -> str:
    return "\n".join([f"{len(files)} files:", *sorted(files)])
