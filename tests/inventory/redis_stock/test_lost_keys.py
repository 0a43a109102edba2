"""Loss of one Redis key, by eviction or by hand: it is detected, and a missing key never counts as an empty one."""

import asyncio
import time
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import load_script
from tests.inventory.actions import is_clean, sell
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.inventory.redis_stock.script_calls import EVENT as SCRIPT_EVENT
from tests.inventory.redis_stock.script_calls import KEYS as SCRIPT_KEYS
from tests.inventory.redis_stock.script_calls import begin_rebuild, finish_rebuild, hold_arguments, open_stock
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
NAMES = ("meta", "counts", "holds", "deadlines", "usage", "revoked", "dirty", "map:A", "map:B")
LIMITS = {"tickets_per_customer": 2, "active_reservations_per_customer": 2}
AVAILABLE = {"A": 13, "B": 7, "GA1": 18}


def key_of(name: str) -> str:
    return KEYS.meta.removesuffix("meta") + name


async def test_these_tests_cover_every_key_of_the_redis_stock(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-1-1"])
    keys = {
        key.decode().removeprefix(key_of("")) for key in await inventory.state.redis_stock.redis.keys("inventory:*")
    }
    assert keys - {"dirty"} == {*NAMES} - {"dirty"}
    assert {name.rstrip(":") for name in Keys.__slots__} == {name.split(":")[0] for name in NAMES}


async def sell_some(inventory: Inventory) -> None:
    """A fan at the limit, one who has bought, one with a GA hold, and one whose pass is revoked."""
    assert (await inventory.put(event_file(**LIMITS))).status_code == 200
    await inventory.state.redis_monitor.check()
    assert (await inventory.reserve("full", key="theirs", seats=["A-1-1"], ga_section="GA1", ga_quantity=1)).is_success
    await sell(inventory, "buyer", seats=["A-1-2", "B-1-1"])
    assert (await inventory.reserve("floor", ga_section="GA1", ga_quantity=1)).is_success
    revoked = [{"jti": "revoked", "holder": "nobody", "expires_at_ms": 9**14}]
    await inventory.post_internal("/sessions/end", {"event_id": EVENT, "sessions": revoked})


async def answers(inventory: Inventory, attempt: int) -> dict[str, tuple[int, str]]:
    """The answers to requests that should succeed and to requests that should be refused."""
    sent = {
        "a seat": await inventory.reserve(f"a{attempt}", seats=[f"A-2-{attempt}"]),
        "ga": await inventory.reserve(f"b{attempt}", ga_section="GA1", ga_quantity=1),
        "best available": await inventory.reserve(f"c{attempt}", best_available={"quantity": 1, "section_id": "B"}),
        "repeated": await inventory.reserve("full", key="theirs", seats=["A-1-1"], ga_section="GA1", ga_quantity=1),
        "taken": await inventory.reserve(f"d{attempt}", seats=["A-1-1"]),
        "too many": await inventory.reserve("full", seats=["A-3-5"]),
        "a revoked pass": await inventory.reserve("nobody", token=make_pass("nobody", jti="revoked"), seats=["A-3-4"]),
    }
    return {name: (answer.status_code, answer.json().get("type", "")) for name, answer in sent.items()}


EXPECTED = {
    "a seat": (201, ""), "ga": (201, ""), "best available": (201, ""), "repeated": (201, ""),
    "taken": (409, "/problems/seats-taken"), "too many": (409, "/problems/limit-exceeded"),
    "a revoked pass": (401, "/problems/bad-credential"),
}  # fmt: skip
RETRY = (503, "/problems/unavailable")


@pytest.mark.parametrize("name", NAMES)
async def test_requests_after_a_lost_key_are_answered_correctly_or_with_503(manual: Inventory, name: str) -> None:
    await sell_some(manual)
    redis, epoch = manual.state.redis_stock.redis, manual.state.catalogue.layout(EVENT).redis_epoch
    await redis.delete(key_of(name))
    sections = (await manual.fans.get(f"/events/{EVENT}/sections")).json()["sections"]
    assert {s["section_id"]: s["available_seats"] for s in sections} == AVAILABLE, "the database answers"
    received = await answers(manual, 1)
    assert {what: answer for what, answer in received.items() if answer not in (EXPECTED[what], RETRY)} == {}
    assert name == "dirty" or RETRY in received.values()
    await manual.state.redis_monitor.check()
    assert manual.state.catalogue.layout(EVENT).redis_epoch == epoch + (name != "dirty")
    assert await answers(manual, 2) == EXPECTED
    assert await manual.violations() == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_key_lost_during_a_sale_costs_nobody_a_seat(inventory: Inventory, name: str) -> None:
    """Every fan requests a different seat, and gets it or is told to retry shortly."""
    redis, statuses = inventory.state.redis_stock.redis, list[int]()

    async def fan(seat_id: str) -> None:
        while statuses[-1:] != [409]:
            answer = await inventory.reserve(f"fan-{seat_id}", seats=[seat_id], ga_section="GA1", ga_quantity=1)
            statuses.append(answer.status_code)
            if answer.status_code != 503:
                return
            await asyncio.sleep(0.02)

    seats = [f"A-{row}-{number}" for row in (1, 2, 3) for number in range(1, 6)]
    seats += [f"B-1-{number}" for number in range(1, 5)]
    selling = asyncio.gather(*map(fan, seats))
    await wait_until(lambda: statuses)
    lost_s = time.monotonic()
    await redis.delete(key_of(name))
    await selling
    assert set(statuses) <= {201, 503}
    assert statuses.count(201) == len(seats)
    await wait_until(lambda: is_complete(redis))
    assert time.monotonic() - lost_s < 5
    assert (await inventory.counts("A"), await inventory.counts("B")) == ((0, 15), (4, 4))
    await wait_until(lambda: is_clean(inventory))
    await redis.delete(key_of(name))  # the loss is detected without any request
    await wait_until(lambda: is_complete(redis))
    assert await inventory.counts("A") == (0, 15)
    assert await inventory.violations() == []


async def is_complete(redis: Redis) -> bool:
    parts = KEYS.parts("AB")
    return bool(await redis.exists(*parts) == len(parts) and await redis.hget(KEYS.meta, "ready") == b"1")


NEW = {"reservation_id": "new", "holder": "new"}
CORRECTIONS = ["A", 5, "*", "s", "GA", "count", ".", -1]
COMMANDS: dict[str, Any] = {
    "hold": lambda redis_stock: redis_stock.hold(SCRIPT_EVENT, [hold_arguments("A:1,2;GA*1", **NEW)]),
    "best_available": lambda redis_stock: redis_stock.hold(
        SCRIPT_EVENT, [{**hold_arguments("", **NEW),
             "best": {"quantity": 2, "price_blocks": [["A", 0, 8, 5]], "split": True, "tidy": True}}]
    ),
    "extend": lambda redis_stock: redis_stock.extend(SCRIPT_EVENT, [("r1", 9**13)], grace_ms=0),
    "confirm_written": lambda redis_stock: redis_stock.confirm_written(SCRIPT_EVENT, {"r1": 9**13}),
    "begin_payment": lambda redis_stock: redis_stock.begin_payment(SCRIPT_EVENT, [("r1", 9**13)]),
    "confirm": lambda redis_stock: redis_stock.confirm(SCRIPT_EVENT, ["r1"]),
    "release": lambda redis_stock: redis_stock.release(SCRIPT_EVENT, ["r1"]),
    "keep_only": lambda redis_stock: redis_stock.keep_only(SCRIPT_EVENT, "r1", "GA*1"),
    "reacquire": lambda redis_stock: redis_stock.reacquire(SCRIPT_EVENT, "r0", "fan", "A:5;GA*1"),
    "set_positions": lambda redis_stock: redis_stock.set_positions(SCRIPT_EVENT, CORRECTIONS),
    "lower_available": lambda redis_stock: redis_stock.lower_available(SCRIPT_EVENT, {"GA": 1}),
    "list_due": lambda redis_stock: redis_stock.list_due(SCRIPT_EVENT, count_max=10),
    "revoke": lambda redis_stock: redis_stock.revoke(SCRIPT_EVENT, [("j", "nobody", 9**12)]),
    "restore": lambda redis_stock: redis_stock.restore(SCRIPT_EVENT, [], [("fan", 3)]),
    "block": lambda redis_stock: load_script("block")(
        redis_stock.redis, **SCRIPT_KEYS.only("meta", "counts", "dirty", "map"), version=2, blocked="A:6", free="A:7",
        ga=["GA", 1],
    ),
    "resize": lambda redis_stock: load_script("resize")(
        redis_stock.redis, **SCRIPT_KEYS.only("meta", "counts", "dirty"), version=2, section_id="GA", capacity=30
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
async def test_no_command_recreates_a_lost_key_or_ignores_its_loss(redis: Redis, command: str) -> None:
    for key in SCRIPT_KEYS.parts(["A"]):
        await redis.flushall()
        redis_stock = await open_stock(redis)
        await redis_stock.hold(SCRIPT_EVENT, [hold_arguments("A:0;GA*2")])
        await redis.delete(key)
        outcomes = await COMMANDS[command](redis_stock)
        assert await redis.exists(key) == 0, key
        if command in ("hold", "best_available"):
            assert [answer.outcome for answer in outcomes] == ["not-ready"], key


async def test_a_key_lost_during_a_rebuild_keeps_the_redis_stock_closed(redis: Redis) -> None:
    for key in SCRIPT_KEYS.parts(["A"]):
        await redis.flushall()
        await open_stock(redis)
        assert await begin_rebuild(redis, epoch=2) == b"done"
        await redis.set(SCRIPT_KEYS.map + "A", "....|....")
        await redis.delete(key)
        assert await finish_rebuild(redis, epoch=2, parts=SCRIPT_KEYS.parts(["A"])) == b"lost"
        assert await redis.hmget(SCRIPT_KEYS.meta, "ready", "rebuild_renewed_at") == [b"0", b"0"], (
            "the next check rebuilds at once"
        )
