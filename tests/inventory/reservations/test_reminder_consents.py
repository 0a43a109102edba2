"""Consent to reminders: stored with its hold until the orders service acknowledges it."""

from typing import Any

from tests.inventory.conftest import Inventory


async def poll(inventory: Inventory, *acknowledged: str) -> list[dict[str, Any]]:
    answer = await inventory.post_internal("/reminder-consents/poll", {"acknowledged": list(acknowledged)})
    return list(answer["consents"])


async def test_consent_is_kept_with_its_hold_until_orders_acknowledges_it(inventory: Inventory) -> None:
    body: dict[str, Any] = {"ga_section": "GA1", "ga_quantity": 1, "email": "ada@example.org"}
    reservation_id = await inventory.hold("consenting", **body, reminders=True)
    assert (await inventory.reserve("silent", **body)).status_code == 201
    for _ in range(2):
        (consent,) = await poll(inventory)
        assert (consent["reservation"]["reservation_id"], consent["email"]) == (reservation_id, "ada@example.org")
    assert await poll(inventory, reservation_id) == []
    assert await poll(inventory) == []
