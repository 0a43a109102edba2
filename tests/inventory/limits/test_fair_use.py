"""Limits against unfair use: holds of one address, repeated releases of one fan, reads with a released pass."""

import asyncio
from types import SimpleNamespace

import pytest

from services.inventory.api import address_limits
from services.inventory.api.address_limits import AddressHolds
from services.inventory.settings import Settings
from shared.contracts.inventory import MinPassEpoch
from tests.inventory.actions import end_sessions
from tests.inventory.conftest import EVENT, Inventory, make_pass
from tests.support.running.suite import bearer, problem


async def hold_from(inventory: Inventory, address: str, holder: str) -> tuple[int, str]:
    """A fan behind this address requests a GA ticket; returns the status and the reservation id or problem type."""
    headers = bearer(make_pass(holder)) | {"x-forwarded-for": address}
    body = {"ga": [{"section_id": "GA1", "quantity": 1}]}
    answer = await inventory.fans.post(f"/events/{EVENT}/reservations", json=body, headers=headers)
    return (201, answer.json()["reservation_id"]) if answer.status_code == 201 else problem(answer)


async def test_one_address_holds_a_limited_number_of_reservations(inventory: Inventory) -> None:
    assert 0 < Settings().address_holds_max <= 500, "the default is bounded"
    inventory.state.address_holds = AddressHolds(most=5, keys_max=100)
    answers = await asyncio.gather(*(hold_from(inventory, "198.51.100.1", f"fan-{n}") for n in range(15)))
    held = {reservation_id: f"fan-{n}" for n, (status, reservation_id) in enumerate(answers) if status == 201}
    assert len(held) == 5
    assert {answer for answer in answers if answer[0] != 201} == {(429, "too-many-requests")}
    assert (await hold_from(inventory, "198.51.100.2", "stranger"))[0] == 201, "another address has its own limit"
    assert (await hold_from(inventory, "2001:db8:1:2::1", "six"))[0] == 201
    released, owner = held.popitem()
    headers = bearer(make_pass(owner)) | {"x-forwarded-for": "198.51.100.1"}
    assert (await inventory.fans.delete(f"/events/{EVENT}/reservations/{released}", headers=headers)).is_success
    assert (await hold_from(inventory, "198.51.100.1", "fan-20"))[0] == 201, "a release makes room for another hold"
    assert await inventory.counts("GA1") == (13, 7)


async def test_a_fan_who_releases_repeatedly_must_wait(inventory: Inventory) -> None:
    statuses: list[int] = []
    for _ in range(40):
        answer = await inventory.reserve("fan", seats=["A-1-1"])
        statuses.append(answer.status_code)
        if answer.status_code == 201:
            assert (await inventory.fan_request("DELETE", answer.json()["reservation_id"])).status_code == 204
        else:
            assert problem(answer) == (429, "too-many-requests")
            assert 0 < int(answer.headers["retry-after"]) <= 5
    assert statuses[:3] == [201] * 3, "a fan may choose again"
    assert statuses.count(201) <= 4
    assert (await inventory.reserve("other", seats=["A-1-1"])).status_code == 201


async def test_a_released_pass_reads_no_seats(inventory: Inventory) -> None:
    seats, headers = f"/events/{EVENT}/sections/A/seats", bearer(make_pass("fan"))
    assert (await inventory.fans.get(seats, headers=headers)).status_code == 200
    await end_sessions(inventory, "fan")
    assert problem(await inventory.fans.get(seats, headers=headers)) == (401, "bad-credential")
    await inventory.state.redis_stock.redis.flushall()
    again = await inventory.fans.get(seats, headers=headers)
    assert again.status_code == 401, "the database has the revoked pass, too"


DOORS = [
    ("GET", f"/events/{EVENT}/sections/A/seats"),
    ("GET", f"/events/{EVENT}/map/state"),
    ("GET", f"/events/{EVENT}/map/state?sections=A"),
    ("POST", f"/events/{EVENT}/reservations"),
]


@pytest.mark.parametrize(("method", "path"), DOORS)
@pytest.mark.parametrize("ended_by", ["release", "reset"])
async def test_a_pass_that_has_ended_opens_no_door(inventory: Inventory, method: str, path: str, ended_by: str) -> None:
    body = {"ga": [{"section_id": "GA1", "quantity": 1}]} if method == "POST" else None
    fresh = await inventory.fans.request(method, path, headers=bearer(make_pass("another")), json=body)
    assert fresh.is_success
    if ended_by == "release":
        await end_sessions(inventory, "fan")
    else:
        await inventory.state.sessions.set_min_pass_epoch(MinPassEpoch(event_id=EVENT, epoch=2))
    refused = await inventory.fans.request(method, path, headers=bearer(make_pass("fan")), json=body)
    assert problem(refused) == (401, "bad-credential")


def test_holds_of_an_address_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(address_limits, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    holds = AddressHolds(most=200, keys_max=10)
    for now_s[0] in range(150):
        holds.add("192.0.2.1", f"hold-{now_s[0]}", lasts_s=5)
    assert len(holds._live["192.0.2.1"]) == 5
