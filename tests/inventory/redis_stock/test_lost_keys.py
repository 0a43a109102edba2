"""One key of Redis is lost, by eviction or by hand: it is noticed, and never reads as nothing free, nobody known."""

import asyncio
import time
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import load_script
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.inventory.redis_stock.test_scripts import KEYS as PARTS
from tests.inventory.redis_stock.test_scripts import E, ask, begun, opened
from tests.inventory.selling import sold
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
NAMES = ("meta", "counts", "holds", "deadlines", "usage", "revoked", "dirty", "map:A", "map:B")
LIMIT = {"tickets_per_customer": 2, "active_reservations_per_customer": 2}
FREE = {"A": 13, "B": 7, "GA1": 18}


def key_of(name: str) -> str:
    return KEYS.meta.removesuffix("meta") + name


async def test_no_key_of_redis_is_left_out_here(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-1-1"])
    keys = {
        key.decode().removeprefix(key_of("")) for key in await inventory.state.redis_stock.redis.keys("inventory:*")
    }
    assert keys - {"dirty"} == {*NAMES} - {"dirty"}
    assert {name.rstrip(":") for name in Keys.__slots__} == {name.split(":")[0] for name in NAMES}


async def sold_in_part(inventory: Inventory) -> None:
    """Somebody at their limit, somebody who paid, and somebody whose pass has ended."""
    assert (await inventory.put(event_file(**LIMIT))).status_code == 200
    await inventory.state.redis_monitor.check()
    assert (await inventory.reserve("full", key="theirs", seats=["A-1-1"], ga_section="GA1", ga_quantity=1)).is_success
    await sold(inventory, "buyer", seats=["A-1-2", "B-1-1"])
    assert (await inventory.reserve("floor", ga_section="GA1", ga_quantity=1)).is_success
    gone = [{"jti": "dead", "holder": "nobody", "expires_at_ms": 9**14}]
    await inventory.ask("/sessions/end", {"event_id": EVENT, "sessions": gone})


async def answers(inventory: Inventory, turn: int) -> dict[str, tuple[int, str]]:
    """What fans are told who should get a place, and who should not."""
    told = {
        "a seat": await inventory.reserve(f"a{turn}", seats=[f"A-2-{turn}"]),
        "the floor": await inventory.reserve(f"b{turn}", ga_section="GA1", ga_quantity=1),
        "the best": await inventory.reserve(f"c{turn}", best_available={"quantity": 1, "section_id": "B"}),
        "again": await inventory.reserve("full", key="theirs", seats=["A-1-1"], ga_section="GA1", ga_quantity=1),
        "taken": await inventory.reserve(f"d{turn}", seats=["A-1-1"]),
        "too many": await inventory.reserve("full", seats=["A-3-5"]),
        "a dead pass": await inventory.reserve("nobody", token=make_pass("nobody", jti="dead"), seats=["A-3-4"]),
    }
    return {what: (answer.status_code, answer.json().get("type", "")) for what, answer in told.items()}


RIGHT = {
    "a seat": (201, ""), "the floor": (201, ""), "the best": (201, ""), "again": (201, ""),
    "taken": (409, "/problems/seats-taken"), "too many": (409, "/problems/limit-exceeded"),
    "a dead pass": (401, "/problems/bad-credential"),
}  # fmt: skip
LATER = (503, "/problems/unavailable")


@pytest.mark.parametrize("name", NAMES)
async def test_who_meets_a_lost_key_first_is_told_the_truth_or_to_come_again(still: Inventory, name: str) -> None:
    await sold_in_part(still)
    redis, epoch = still.state.redis_stock.redis, still.state.catalogue.layout(EVENT).redis_epoch
    await redis.delete(key_of(name))
    shown = (await still.fans.get(f"/events/{EVENT}/sections")).json()["sections"]
    assert {s["section_id"]: s["available_seats"] for s in shown} == FREE, "what is free is known from the database"
    told = await answers(still, 1)
    assert {what: answer for what, answer in told.items() if answer not in (RIGHT[what], LATER)} == {}
    assert name == "dirty" or LATER in told.values()
    await still.state.redis_monitor.check()
    assert still.state.catalogue.layout(EVENT).redis_epoch == epoch + (name != "dirty")
    assert await answers(still, 2) == RIGHT
    assert await still.broken() == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_key_lost_in_the_middle_of_a_sale_costs_nobody_a_place(inventory: Inventory, name: str) -> None:
    """Everybody asks for a seat that nobody else wants: no answer but a place, or to come again shortly."""
    redis, said = inventory.state.redis_stock.redis, list[int]()

    async def fan(seat_id: str) -> None:
        while said[-1:] != [409]:
            answer = await inventory.reserve(f"fan-{seat_id}", seats=[seat_id], ga_section="GA1", ga_quantity=1)
            said.append(answer.status_code)
            if answer.status_code != 503:
                return
            await asyncio.sleep(0.02)

    seats = [f"A-{row}-{number}" for row in (1, 2, 3) for number in range(1, 6)]
    seats += [f"B-1-{number}" for number in range(1, 5)]
    selling = asyncio.gather(*map(fan, seats))
    await wait_until(lambda: said)
    lost_s = time.monotonic()
    await redis.delete(key_of(name))
    await selling
    assert set(said) <= {201, 503}
    assert said.count(201) == len(seats)
    await wait_until(lambda: whole(redis))
    assert time.monotonic() - lost_s < 5
    assert (await inventory.left("A"), await inventory.left("B")) == ((0, 15), (4, 4))
    await wait_until(lambda: clean(inventory), timeout_s=5)
    await redis.delete(key_of(name))  # now nobody asks for anything
    await wait_until(lambda: whole(redis))
    assert await inventory.left("A") == (0, 15)
    assert await inventory.broken() == []


async def whole(redis: Redis) -> bool:
    parts = KEYS.parts("AB")
    return bool(await redis.exists(*parts) == len(parts) and await redis.hget(KEYS.meta, "ready") == b"1")


async def clean(inventory: Inventory) -> bool:
    inventory.travel(1_000)
    return await inventory.broken() == []


VERBS: dict[str, Any] = {
    "hold": lambda redis_stock: redis_stock.hold(E, [ask("A:1,2;GA*1", reservation_id="new", holder="new")]),
    "best": lambda redis_stock: redis_stock.hold(
        E, [{**ask("", reservation_id="new", holder="new"),
             "best": {"quantity": 2, "price_blocks": [["A", 0, 8, 5]], "split": True, "tidy": True}}]
    ),
    "extend": lambda redis_stock: redis_stock.extend(E, [("r1", 9**13)], grace_ms=0),
    "written": lambda redis_stock: redis_stock.confirm_written(E, {"r1": 9**13}),
    "begin_payment": lambda redis_stock: redis_stock.begin_payment(E, [("r1", 9**13)]),
    "end_payment": lambda redis_stock: redis_stock.end_payment(E, [("r1", 9**13)], grace_ms=0),
    "confirm": lambda redis_stock: redis_stock.confirm(E, ["r1"]),
    "release": lambda redis_stock: redis_stock.release(E, ["r1"]),
    "keep": lambda redis_stock: redis_stock.keep_only(E, "r1", "GA*1"),
    "reacquire": lambda redis_stock: redis_stock.reacquire(E, "r0", "fan", "A:5;GA*1"),
    "correct": lambda redis_stock: redis_stock.set_positions(E, ["A", 5, "*", "s", "GA", "count", ".", -1]),
    "cap": lambda redis_stock: redis_stock.lower_available(E, {"GA": 1}),
    "due": lambda redis_stock: redis_stock.list_due(E, count_max=10),
    "revoke": lambda redis_stock: redis_stock.revoke(E, [("j", "nobody", 9**12)]),
    "remember": lambda redis_stock: redis_stock.restore(E, [], [("fan", 3)]),
    "block": lambda redis_stock: load_script("block")(
        redis_stock.redis, **PARTS.only("meta", "counts", "dirty", "map"), version=2, blocked="A:6", free="A:7",
        ga=["GA", 1],
    ),
    "resize": lambda redis_stock: load_script("resize")(
        redis_stock.redis, **PARTS.only("meta", "counts", "dirty"), version=2, section_id="GA", capacity=30
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
async def test_no_verb_makes_a_lost_part_anew_or_goes_on_without_it(redis: Redis, verb: str) -> None:
    for part in PARTS.parts(["A"]):
        await redis.flushall()
        redis_stock = await opened(redis)
        await redis_stock.hold(E, [ask("A:0;GA*2")])
        await redis.delete(part)
        told = await VERBS[verb](redis_stock)
        assert await redis.exists(part) == 0, part
        if verb in ("hold", "best"):
            assert [answer.outcome for answer in told] == ["not-ready"], part


async def test_a_part_lost_while_redis_is_filled_keeps_it_closed(redis: Redis) -> None:
    for part in PARTS.parts(["A"]):
        await redis.flushall()
        await opened(redis)
        assert await begun(redis, epoch=2) == b"done"
        await redis.set(PARTS.map + "A", "....|....")
        await redis.delete(part)
        parts = PARTS.parts(["A"])
        answer = await load_script("finish_rebuild")(
            redis, meta=PARTS.meta, parts=parts, epoch=2, redis_instance_id="x", stock_version=1
        )
        assert answer == b"lost"
        assert await redis.hmget(PARTS.meta, "ready", "rebuild_renewed_at") == [b"0", b"0"], (
            "whoever watches fills at once"
        )
