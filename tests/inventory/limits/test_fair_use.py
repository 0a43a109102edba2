"""What one fan and one address may hold, give back and look at."""

import asyncio

from services.inventory.api.address_limits import AddressHolds
from services.inventory.settings import Settings
from tests.inventory.conftest import EVENT, Inventory, make_pass
from tests.inventory.reservations.test_sessions import end


async def hold_from(inventory: Inventory, address: str, holder: str) -> tuple[int, str]:
    """Status and id, or slug, of a hold on the floor by a fan behind this address."""
    headers = {"authorization": f"Bearer {make_pass(holder)}", "x-forwarded-for": address}
    body = {"ga": [{"section_id": "GA1", "quantity": 1}]}
    answer = await inventory.fans.post(f"/events/{EVENT}/reservations", json=body, headers=headers)
    return answer.status_code, answer.json().get("reservation_id") or answer.json()["type"]


async def test_one_address_holds_so_many_at_once_and_no_more(inventory: Inventory) -> None:
    assert 0 < Settings().address_holds_max <= 500, "by default there is a bound"
    inventory.state.address_holds = AddressHolds(most=5, keys_max=100)
    crowd = await asyncio.gather(*(hold_from(inventory, "198.51.100.1", f"fan-{n}") for n in range(15)))
    held = [name for status, name in crowd if status == 201]
    assert len(held) == 5
    assert {answer for answer in crowd if answer[0] != 201} == {(429, "/problems/too-many-requests")}
    assert (await hold_from(inventory, "198.51.100.2", "stranger"))[0] == 201, "nobody else's business"
    assert (await hold_from(inventory, "2001:db8:1:2::1", "six"))[0] == 201
    owner = next(f"fan-{n}" for n, answer in enumerate(crowd) if answer[1] == held[0])
    headers = {"authorization": f"Bearer {make_pass(owner)}", "x-forwarded-for": "198.51.100.1"}
    assert (await inventory.fans.delete(f"/events/{EVENT}/reservations/{held[0]}", headers=headers)).status_code == 204
    assert (await hold_from(inventory, "198.51.100.1", "fan-20"))[0] == 201, "what is given back is free"
    assert await inventory.left("GA1") == (13, 7)


async def test_who_gives_back_again_and_again_waits_a_moment(inventory: Inventory) -> None:
    seen: list[int] = []
    for _ in range(40):
        answer = await inventory.reserve("fan", seats=["A-1-1"])
        seen.append(answer.status_code)
        if answer.status_code == 201:
            assert (await inventory.mine("DELETE", answer.json()["reservation_id"])).status_code == 204
        else:
            assert answer.json()["type"] == "/problems/too-many-requests"
            assert 0 < int(answer.headers["retry-after"]) <= 5
    assert seen[:3] == [201] * 3, "choosing again is no offence"
    assert seen.count(201) <= 4
    assert (await inventory.reserve("other", seats=["A-1-1"])).status_code == 201


async def test_a_pass_that_was_given_back_reads_no_seats(inventory: Inventory) -> None:
    seats, headers = f"/events/{EVENT}/sections/A/seats", {"authorization": f"Bearer {make_pass('fan')}"}
    assert (await inventory.fans.get(seats, headers=headers)).status_code == 200
    await end(inventory, "fan")
    refused = await inventory.fans.get(seats, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential")
    await inventory.state.redis_stock.redis.flushall()
    assert (await inventory.fans.get(seats, headers=headers)).status_code == 401, "the database knows it, too"
