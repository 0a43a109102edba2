"""Consent to reminders is kept with its hold until orders says that it has heard of it."""

from typing import Any

from tests.inventory.conftest import Inventory


async def unheard(inventory: Inventory, *heard: str) -> list[dict[str, Any]]:
    answer = await inventory.ask("/reminder-consents/poll", {"acknowledged": list(heard)})
    return list(answer["consents"])


async def test_consent_comes_with_the_hold_and_stays_until_it_is_heard(inventory: Inventory) -> None:
    wish: dict[str, Any] = {"ga_section": "GA1", "ga_quantity": 1, "email": "ada@example.org"}
    made = (await inventory.reserve("asks", **wish, reminders=True)).json()["reservation_id"]
    assert (await inventory.reserve("silent", **wish)).status_code == 201
    for _ in range(2):
        (consent,) = await unheard(inventory)
        assert (consent["reservation"]["reservation_id"], consent["email"]) == (made, "ada@example.org")
    assert await unheard(inventory, made) == []
    assert await unheard(inventory) == []


async def test_consent_needs_an_address(inventory: Inventory) -> None:
    refused = await inventory.reserve(ga_section="GA1", ga_quantity=1, reminders=True)
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid-request")
    assert "reminders need an email" in refused.json()["detail"]
