"""Redis' scripts against a real engine: all or nothing, idempotent, bounded, and called as their headers say."""

import re
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock import client as redis_client
from services.inventory.redis_stock.client import HoldDenied, HoldGranted, RedisStock, load_script
from shared.runtime.clock import now_ms

E = "e"
KEYS = Keys.of(E)
LUA = Path(redis_client.__file__).parent / "lua"
VERBS = sorted(path.stem for path in LUA.glob("*.lua") if path.stem not in ("prelude", "best"))


async def opened(redis: Redis, *, a: str = "....|....", floor: int = 10) -> RedisStock:
    """Redis with a seated section A and a floor GA."""
    section = KEYS.only("meta", "counts", "dirty", "map")
    assert await begun(redis, epoch=1) == b"done"
    for name, marks, n in (("A", a, a.count(".")), ("GA", "", floor)):
        counts = {"available": n, "held": 0, "sold": 0, "blocked": 0}
        await load_script("rebuild_section")(redis, **section, epoch=1, section_id=name, marks=marks, **counts)
    parts = KEYS.parts(["A"])
    assert (
        await load_script("finish_rebuild")(
            redis, meta=KEYS.meta, parts=parts, epoch=1, redis_instance_id="x", stock_version=1
        )
        == b"done"
    )
    return RedisStock(redis)


async def begun(redis: Redis, *, epoch: int) -> Any:
    marked = KEYS.only("meta", "counts", "holds", "deadlines", "usage", "revoked")
    return await load_script("rebuild_begin")(redis, **marked, emptied=[KEYS.map + "A"], epoch=epoch, clock_offset_ms=0)


def ask(selection: str, *, reservation_id: str = "r1", holder: str = "fan", **more: Any) -> dict[str, Any]:
    return {
        "reservation_id": reservation_id, "holder": holder, "jti": "j", "stock_hash": selection, "body_hash": "",
        "selection": selection, "hold_ttl_ms": 60_000, "tickets_max": 0, "live_max": 5, **more,
    }  # fmt: skip


async def hold(redis_stock: RedisStock, selection: str, **more: Any) -> HoldGranted | HoldDenied:
    return (await redis_stock.hold(E, [ask(selection, **more)]))[0]


async def state(redis: Redis) -> dict[str, Any]:
    """Everything Redis remembers, apart from its clock and its marks."""
    hashes = {key: await redis.hgetall(key) for key in (KEYS.counts, KEYS.holds, KEYS.usage)}
    assert {fields.pop(EPOCH) for fields in hashes.values()} == {b"1"}
    counts = {k.decode(): int(v) for k, v in hashes[KEYS.counts].items() if int(v)}
    return {
        "map": (await redis.get(KEYS.map + "A")).decode(), "counts": counts, "holds": sorted(hashes[KEYS.holds]),
        "deadlines": [which for which, _ in await deadlines(redis)], "usage": hashes[KEYS.usage],
        "holding": await redis.hget(KEYS.meta, "holding"),
    }  # fmt: skip


async def deadlines(redis: Redis) -> list[tuple[bytes, float]]:
    everything = await redis.zrange(KEYS.deadlines, 0, -1, withscores=True)
    assert everything.pop() == (EPOCH, float("inf"))
    return [(which, at) for which, at in everything]


@pytest.mark.parametrize("verb", VERBS)
def test_every_script_is_called_as_its_header_says(verb: str) -> None:
    script = load_script(verb)
    source = (LUA / f"{verb}.lua").read_text()
    code = "\n".join(line for line in source.splitlines() if not line.startswith("--"))
    for which, slots in (("KEYS", script.keys), ("ARGV", script.arguments)):
        used = {int(n) for n in re.findall(rf"{which}\[(\d+)\]", code)}
        listed = next((i for i, slot in enumerate(slots, 1) if slot.is_list), None)
        assert used <= set(range(1, len(slots) + 1))
        assert set(range(1, len(slots) + 1)) - used <= {listed}
    with pytest.raises(TypeError, match="missing or unknown"):
        script.bind({"nonsense": 1})


async def test_a_basket_is_taken_whole_or_not_at_all(redis: Redis) -> None:
    redis_stock = await opened(redis)
    assert isinstance(await hold(redis_stock, "A:0,1;GA*3"), HoldGranted)
    before = await state(redis)
    assert (before["map"], before["counts"]) == (
        "hh..|....", {"A:available": 6, "A:held": 2, "GA:available": 7, "GA:held": 3}
    )  # fmt: skip
    seats = await hold(redis_stock, "A:1,2;GA*1", reservation_id="r2", holder="other")
    floor = await hold(redis_stock, "A:2;GA*8", reservation_id="r3", holder="third")
    assert isinstance(seats, HoldDenied)
    assert (seats.outcome, seats.detail) == ("seats-taken", "A:1")
    assert isinstance(floor, HoldDenied)
    assert (floor.outcome, floor.detail) == ("sold-out", "GA*7")
    assert await state(redis) == before


async def test_seats_between_those_asked_for_are_left_alone(redis: Redis) -> None:
    redis_stock = await opened(redis)
    assert isinstance(await hold(redis_stock, "A:0,2,3,6;GA*1"), HoldGranted)
    held = await state(redis)
    assert (held["map"], held["counts"]["A:held"], held["counts"]["A:available"]) == ("h.hh|.h..", 4, 4)
    refused = await hold(redis_stock, "A:1,2,3,5,6", reservation_id="r2", holder="other")
    assert isinstance(refused, HoldDenied)
    assert refused.detail == "A:2;A:3;A:6"
    await redis_stock.release(E, ["r1"])
    assert (await state(redis))["map"] == "....|...."


async def test_every_change_is_shown_and_nothing_twice(redis: Redis) -> None:
    redis_stock = await opened(redis)

    async def shown() -> bool:
        keys = KEYS.only("meta", "counts", "dirty")
        return bool(await load_script("publish")(redis, **keys, clock_offset_ms=0, others_ms=now_ms(), force=0, peek=0))

    assert (await shown(), await shown()) == (True, False)
    for change in (
        redis_stock.hold(E, [ask("A:0;GA*1"), ask("A:1", reservation_id="r2"), ask("GA*2", reservation_id="r3")]),
        redis_stock.release(E, ["r1"]),
        redis_stock.confirm(E, ["r2", "r3"]),
        redis_stock.set_positions(E, ["A", 5, "*", "x"]),
    ):
        await change
        assert (await shown(), await shown()) == (True, False)


async def test_a_row_end_is_no_seat(redis: Redis) -> None:
    redis_stock = await opened(redis)
    refused = await hold(redis_stock, "A:3,4")
    assert isinstance(refused, HoldDenied)
    assert refused.detail == "A:4"


async def test_holding_again_changes_nothing_and_another_basket_is_refused(redis: Redis) -> None:
    redis_stock = await opened(redis)
    first = await hold(redis_stock, "A:0;GA*2")
    before = await state(redis)
    again = await hold(redis_stock, "A:0;GA*2")
    assert isinstance(first, HoldGranted)
    assert isinstance(again, HoldGranted)
    assert (again.outcome, again.until_ms) == ("again", first.until_ms)
    other = await hold(redis_stock, "A:1")
    assert isinstance(other, HoldDenied)
    assert other.outcome == "reused"
    assert await state(redis) == before


async def test_the_same_holder_gets_the_same_stock_back_under_its_first_id(redis: Redis) -> None:
    redis_stock = await opened(redis)
    await hold(redis_stock, "A:0")
    again = await hold(redis_stock, "A:0", reservation_id="r2")
    assert isinstance(again, HoldGranted)
    assert (again.outcome, again.reservation_id) == ("again", "r1")


async def test_limits_name_themselves(redis: Redis) -> None:
    redis_stock = await opened(redis)
    await hold(redis_stock, "GA*2", tickets_max=3, live_max=1)
    live = await hold(redis_stock, "GA*1", reservation_id="r2", tickets_max=3, live_max=1)
    tickets = await hold(redis_stock, "GA*3", reservation_id="r3", tickets_max=3)
    assert isinstance(live, HoldDenied)
    assert isinstance(tickets, HoldDenied)
    assert (live.detail, tickets.detail) == ("active_reservations_per_customer", "tickets_per_customer")


async def test_a_refusal_names_at_most_twenty_due_holds_and_frees_none(redis: Redis) -> None:
    redis_stock = await opened(redis, floor=30)
    for i in range(30):
        await hold(redis_stock, "GA*1", reservation_id=f"r{i:02}", holder=f"fan-{i}")
    redis_stock.clock_offset_ms = 3_600_000
    before = await state(redis)
    refused = await hold(redis_stock, "GA*1", reservation_id="stale", holder="stale")
    assert isinstance(refused, HoldDenied)
    assert len(refused.due) == 20
    assert await state(redis) == before


async def test_the_clock_never_goes_back(redis: Redis) -> None:
    redis_stock = await opened(redis)
    redis_stock.clock_offset_ms = 60_000
    ahead = await hold(redis_stock, "A:0")
    redis_stock.clock_offset_ms = 0
    behind = await hold(redis_stock, "A:1", reservation_id="r2", holder="other")
    assert isinstance(ahead, HoldGranted)
    assert isinstance(behind, HoldGranted)
    assert behind.until_ms >= ahead.until_ms


async def test_a_closed_redis_takes_nothing(redis: Redis) -> None:
    refused = await hold(RedisStock(redis), "GA*1")
    assert isinstance(refused, HoldDenied)
    assert refused.outcome == "not-ready"
    assert await redis.keys("*") == []


async def test_release_and_confirm_work_once(redis: Redis) -> None:
    redis_stock = await opened(redis)
    fresh = await state(redis)
    await hold(redis_stock, "A:0;GA*2")
    await redis_stock.release(E, ["r1", "r1"])
    assert await state(redis) == fresh
    await hold(redis_stock, "A:0;GA*2")
    await redis_stock.confirm(E, ["r1"])
    sold = await state(redis)
    assert (sold["map"], sold["counts"]) == (
        "s...|....", {"A:available": 7, "A:sold": 1, "GA:available": 8, "GA:sold": 2}
    )  # fmt: skip
    assert sold["usage"] == {b"t:fan": b"3"}
    await redis_stock.confirm(E, ["r1"])
    await redis_stock.release(E, ["r1"])
    assert await state(redis) == sold


async def test_a_late_word_of_the_database_neither_lowers_a_deadline_nor_gives_one_back(redis: Redis) -> None:
    """No fan waits until Redis has heard that a hold is written: extension, payment or end may come first."""
    redis_stock = await opened(redis)
    for position, which in enumerate(("new", "extended", "paid", "ended")):
        await hold(redis_stock, f"A:{position}", reservation_id=which, holder=which)
    gated = {which: int(at) for which, at in await deadlines(redis)}
    later = gated[b"new"] + 60_000
    await redis_stock.extend(E, [("extended", later + 60_000)], grace_ms=0)
    await redis_stock.begin_payment(E, [("paid", later)])
    await redis_stock.release(E, ["ended"])
    for _ in range(2):
        await redis_stock.confirm_written(E, dict.fromkeys(("new", "extended", "paid", "ended", "unknown"), later))
    left = {which: int(at) for which, at in await deadlines(redis)}
    assert left == {b"new": later, b"extended": later + 60_000}


async def test_payment_takes_the_deadline_away_and_gives_it_back(redis: Redis) -> None:
    redis_stock = await opened(redis)
    await hold(redis_stock, "A:0")
    await redis_stock.begin_payment(E, [("r1", 1_000)])
    await redis_stock.begin_payment(E, [("r1", 1_000)])
    assert (await state(redis))["deadlines"] == []
    await redis_stock.end_payment(E, [("r1", 1_000)], grace_ms=500)
    assert await redis.zscore(KEYS.deadlines, "r1") == 1_500
    await redis_stock.extend(E, [("r1", 9_000), ("unknown", 9_000)], grace_ms=500)
    assert await deadlines(redis) == [(b"r1", 9_500.0)]


async def test_retaking_twice_sells_once_and_overrules_a_newer_hold(redis: Redis) -> None:
    redis_stock = await opened(redis)
    await hold(redis_stock, "A:0", reservation_id="new", holder="new")
    for _ in range(2):
        await redis_stock.reacquire(E, "r1", "fan", "A:0;GA*2")
    after = await state(redis)
    assert (after["map"], after["counts"]) == (
        "s...|....", {"A:available": 7, "A:sold": 1, "GA:available": 8, "GA:sold": 2}
    )  # fmt: skip
    await redis_stock.release(E, ["new"])
    assert (await state(redis))["map"] == "s...|....", "releasing the loser must not free what was sold"


async def test_correct_and_cap_take_the_ledgers_word(redis: Redis) -> None:
    redis_stock = await opened(redis)
    assert (
        await redis_stock.set_positions(
            E, ["A", 0, "*", "s", "A", 1, "h", "s", "GA", "count", ".", -4, "GA", "count", "s", 4]
        )
        == 3
    )
    await redis_stock.lower_available(E, {"GA": 2})
    await redis_stock.lower_available(E, {"GA": 5})
    after = await state(redis)
    assert after["map"] == "s...|....", "a seat that changed since it was looked at is left alone"
    assert after["counts"] == {"A:available": 7, "A:sold": 1, "GA:available": 2, "GA:blocked": 4, "GA:sold": 4}


async def test_a_pass_dies_only_while_its_holder_holds_nothing(redis: Redis) -> None:
    redis_stock = await opened(redis)
    held = await hold(redis_stock, "A:0")
    assert isinstance(held, HoldGranted)
    assert await redis_stock.revoke(E, [("j", "fan", 9**12)]) == [("live", held.until_ms)]
    await redis_stock.release(E, ["r1"])
    assert await redis_stock.revoke(E, [("j", "fan", 9**12)]) == [("gone", None)]
    refused = await hold(redis_stock, "A:0")
    assert isinstance(refused, HoldDenied)
    assert refused.outcome == "revoked"


async def test_filling_with_an_older_epoch_is_refused(redis: Redis) -> None:
    await opened(redis)
    assert await begun(redis, epoch=3) == b"done"
    before = await redis.hgetall(KEYS.counts)
    some = KEYS.only("meta", "counts", "dirty", "map")
    section: dict[str, Any] = {"section_id": "GA", "marks": "", "available": 99, "held": 0, "sold": 0, "blocked": 0}
    assert await begun(redis, epoch=2) == b"superseded"
    assert await load_script("rebuild_section")(redis, **some, epoch=2, **section) == b"superseded"
    few = KEYS.only("meta", "holds", "deadlines", "usage")
    assert await load_script("rebuild_holds")(redis, **few, epoch=2, listed=[]) == b"superseded"
    assert await load_script("rebuild_usage")(redis, **KEYS.only("meta", "usage"), epoch=2, tickets=[]) == b"superseded"
    assert (
        await load_script("rebuild_revoked")(redis, **KEYS.only("meta", "revoked"), epoch=2, passes=[]) == b"superseded"
    )
    opened_again = await load_script("finish_rebuild")(
        redis, meta=KEYS.meta, parts=[], epoch=2, redis_instance_id="x", stock_version=1
    )
    assert opened_again == b"superseded"
    assert await redis.hgetall(KEYS.counts) == before
