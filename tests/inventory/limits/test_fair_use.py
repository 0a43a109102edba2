"""Limits against unfair use: holds of one address, repeated releases of one fan, reads with a released pass, and
cookies that look like a credential.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
import pytest

from services.inventory.settings import Settings
from shared.contracts.inventory import MinPassEpoch
from shared.errors.problems import TooManyRequests
from shared.security import limits
from shared.security.limits import AddressHolds, FanLimit
from tests.inventory.actions import end_sessions
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.serving import serving
from tests.support.running.suite import Kind, balancer_parameters, bearer, plan_for_ports, problem, running_balancer


async def hold_from(
    inventory: Inventory, address: str, holder: str, *, key: str | None = None, quantity: int = 1
) -> tuple[int, str]:
    """A fan behind this address requests GA tickets; returns the status and the reservation id or problem type."""
    headers = bearer(make_pass(holder)) | {"x-forwarded-for": address} | ({"idempotency-key": key} if key else {})
    body = {"ga": [{"section_id": "GA1", "quantity": quantity}]}
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


async def test_repeating_the_key_of_a_live_hold_does_not_uncount_it(inventory: Inventory) -> None:
    inventory.state.address_holds = AddressHolds(most=5, keys_max=100)
    held = 0
    for n in range(15):
        held += (await hold_from(inventory, "198.51.100.1", f"fan-{n}", key="once"))[0] == 201
        other_body = await hold_from(inventory, "198.51.100.1", f"fan-{n}", key="once", quantity=2)
        assert other_body[0] == (422 if n < 5 else 429)
    assert held == 5
    assert await inventory.counts("GA1") == (15, 5)


async def test_a_hold_counts_for_its_address_as_long_as_it_lasts(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory.state.address_holds = AddressHolds(most=2, keys_max=100)
    held = [(await hold_from(inventory, "198.51.100.1", f"fan-{n}"))[1] for n in range(2)]
    now_s = [time.monotonic()]
    monkeypatch.setattr(limits, "monotonic", lambda: now_s[0])
    now_s[0] += 290
    assert (await inventory.fan_request("POST", held[0], "fan-0", more="/extend")).status_code == 200
    assert (await inventory.step("begin-payment", held[1], "order-1"))["outcome"] == "done"
    ttl_s = inventory.state.catalogue.layout(EVENT).hold_ttl_s
    now_s[0] += ttl_s - 280
    assert (await hold_from(inventory, "198.51.100.1", "other"))[0] == 429, "both were given more time"
    assert (await inventory.step("release", held[1], "order-1"))["outcome"] == "done"
    assert (await hold_from(inventory, "198.51.100.1", "other"))[0] == 201, "its order let it go"


async def test_a_fan_whose_orders_let_holds_go_repeatedly_must_wait(inventory: Inventory) -> None:
    statuses: list[int] = []
    for n in range(20):
        answer = await inventory.reserve("fan", seats=["A-1-1"])
        statuses.append(answer.status_code)
        if answer.status_code == 201:
            for verb in ("begin-payment", "release", "release"):
                assert (await inventory.step(verb, answer.json()["reservation_id"], f"order-{n}"))["outcome"] == "done"
    assert statuses[:3] == [201] * 3
    assert statuses.count(201) <= 4
    assert (await inventory.reserve("other", seats=["A-1-1"])).status_code == 201


async def test_a_fan_who_gives_back_all_but_one_place_again_and_again_must_wait(inventory: Inventory) -> None:
    await inventory.put(event_file(active_reservations_per_customer=0))
    held = [await inventory.hold("fan", ga_section="GA1", ga_quantity=6)]
    for kept in (5, 4, 3):
        path = f"/events/{EVENT}/reservations/{held[0]}/keep"
        body = {"ga": [{"section_id": "GA1", "quantity": kept}]}
        for _ in range(2):  # the second changes nothing and counts nothing
            answer = await inventory.fans.post(path, json=body, headers=bearer(make_pass("fan")))
            assert answer.status_code == 200, answer.text
        status = (await inventory.reserve("fan", ga=[{"section_id": "GA1", "quantity": 1}])).status_code
        assert status == (429 if kept == 3 else 201)


@pytest.mark.usefixtures("loops")
async def test_leaving_the_line_with_a_hold_counts_as_releasing_it(inventory: Inventory) -> None:
    for n in range(4):
        token = make_pass("fan", jti=f"jti-{n}")
        answer = await inventory.reserve("fan", token=token, seats=["A-1-1"])
        assert answer.status_code == (201 if n < 3 else 429)
        sessions = [{"jti": f"jti-{n}", "holder": "fan", "expires_at_ms": 9**14}]
        body = {"event_id": EVENT, "leaving": True, "sessions": sessions}
        await inventory.post_internal("/sessions/end", body)


async def test_a_release_that_releases_nothing_shortens_no_pause(inventory: Inventory) -> None:
    pauses = inventory.state.given_back
    held = await inventory.hold("fan")
    kept = {"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]}
    for _ in range(50):
        pauses.charge((EVENT, "fan"), now_s=time.monotonic())
    before_s = pauses.wait_s((EVENT, "fan"), now_s=0)
    for _ in range(5):
        path = f"/events/{EVENT}/reservations/{held}/keep"
        assert (await inventory.fans.post(path, json=kept, headers=bearer(make_pass("fan")))).status_code == 200
    assert pauses.wait_s((EVENT, "fan"), now_s=0) >= before_s - 0.001


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
    ("GET", f"/events/{EVENT}/map/reserved"),
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
    monkeypatch.setattr(limits, "monotonic", lambda: now_s[0])
    holds = AddressHolds(most=200, keys_max=10)
    for now_s[0] in range(150):
        with holds.counted("192.0.2.1", f"hold-{now_s[0]}", lasts_s=5) as counted:
            counted.is_held = True
    assert len(holds._live["192.0.2.1"]) == 5


def test_a_refused_request_does_not_uncount_another_one_for_the_same_hold() -> None:
    holds = AddressHolds(most=1, keys_max=10)
    with (
        holds.counted("192.0.2.1", "hold", lasts_s=60),  # is refused later
        holds.counted("192.0.2.1", "hold", lasts_s=60) as repeated,
    ):
        repeated.is_held = True
    with pytest.raises(TooManyRequests), holds.counted("192.0.2.1", "another", lasts_s=60):
        pass


NAME, SEATS = f"onsale_pass_{EVENT}", f"/events/{EVENT}/sections/A/seats"


@pytest.mark.parametrize("kind", balancer_parameters())
async def test_a_cookie_beside_the_pass_escapes_no_limit_of_its_fan(
    inventory: Inventory, tmp_path: Path, kind: Kind
) -> None:
    low = FanLimit(per_s=0.01, burst=5, keys_max=100)
    inventory.state.authenticator = replace(inventory.state.authenticator, fan_limit=low)
    token, statuses = make_pass("fan"), list[int]()
    async with serving(cast(httpx.ASGITransport, inventory.fans._transport).app) as port:
        with running_balancer(kind, plan_for_ports(port), tmp_path) as address:
            async with httpx.AsyncClient(base_url=address, timeout=20) as fan:
                for n in range(20):
                    pair = [f"{NAME}=a.b.decoy-{n}", f"{NAME}={token}", f"onsale_queue_other=a.b.decoy-{n}"]
                    cookies = "; ".join(pair if n % 2 else pair[::-1])
                    statuses.append((await fan.get(SEATS, headers={"cookie": cookies})).status_code)
                assert (statuses.count(200), statuses.count(429)) == (5, 15)
                assert (await fan.get(SEATS, headers=bearer(token))).status_code == 429, "it is the same fan"
                assert (await fan.get(SEATS, headers=bearer(make_pass("other")))).status_code == 200
