"""The Lua scripts on a real Redis: all or nothing, idempotent, bounded, and called as their headers declare.

Direct calls of the Redis scripts on one small stock: a seated section A and a GA section.
"""

import re
import time
from importlib.resources import files
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock import client as redis_client
from services.inventory.redis_stock.client import (
    Change,
    HoldDenied,
    HoldGranted,
    RedisStock,
    ended,
    follow_calls,
    load_script,
    written,
)
from shared.runtime.clock import now_ms

EVENT = "e"
KEYS = Keys.of(EVENT)


async def open_stock(redis: Redis, *, a: str = "....|....", ga: int = 10) -> RedisStock:
    """A stock that is open for sale, with these marks of section A and so many GA tickets."""
    assert await begin_rebuild(redis, epoch=1) == b"done"
    nothing = {"held": 0, "sold": 0, "blocked": 0}
    sections: list[Change] = [
        {"id": "A", "map": a, "counts": {"available": a.count("."), **nothing}},
        {"id": "GA", "counts": {"available": ga, **nothing}},
    ]
    for call in follow_calls(places=sections, epoch=1, rebuild=True):
        assert await RedisStock(redis).call("follow", EVENT, **call) == b"done"
    assert await finish_rebuild(redis, epoch=1, parts=KEYS.parts(["A"])) == b"done"
    return RedisStock(redis)


async def begin_rebuild(redis: Redis, *, epoch: int) -> Any:
    emptied = [KEYS.map + "A"]
    return await RedisStock(redis).call("rebuild_begin", EVENT, emptied=emptied, epoch=epoch, clock_offset_ms=0)


async def finish_rebuild(redis: Redis, *, epoch: int, parts: list[str]) -> Any:
    return await load_script("finish_rebuild")(
        redis, meta=KEYS.meta, parts=parts, epoch=epoch, redis_instance_id="x", stock_version=1
    )


def live(reservation_id: str, version: int, *, until_ms: int, paying: bool = False, has: str = "A:0") -> Change:
    """A hold, or one that is being paid, without a grace."""
    now = "p" if paying else "h"
    return {"id": reservation_id, "v": version, "now": now, "until": until_ms, "release_at": until_ms, "has": has}


def bought(reservation_id: str, version: int = 3, **more: Any) -> Change:
    return {"id": reservation_id, "v": version, "now": "s", **more}


def hold_arguments(selection: str, *, reservation_id: str = "r1", holder: str = "fan", **more: Any) -> dict[str, Any]:
    return {
        "reservation_id": reservation_id, "holder": holder, "jti": "j", "stock_hash": selection, "body_hash": "",
        "selection": selection, "hold_ttl_ms": 60_000, "tickets_max": 0, "live_max": 5, **more,
    }  # fmt: skip


async def grant(redis_stock: RedisStock, selection: str, **more: Any) -> HoldGranted:
    """The hold that Redis must grant."""
    (reply,) = await redis_stock.hold(EVENT, [hold_arguments(selection, **more)])
    assert isinstance(reply, HoldGranted), reply
    return reply


async def denial(redis_stock: RedisStock, selection: str, **more: Any) -> tuple[str, str]:
    """The outcome and the detail of a hold that Redis must deny."""
    (reply,) = await redis_stock.hold(EVENT, [hold_arguments(selection, **more)])
    assert isinstance(reply, HoldDenied), reply
    return reply.outcome, reply.detail


async def state(redis: Redis) -> dict[str, Any]:
    """Everything that Redis stores, apart from its clock and its epoch marks."""
    hashes = {key: await redis.hgetall(key) for key in (KEYS.counts, KEYS.holds, KEYS.usage)}
    assert {fields.pop(EPOCH) for fields in hashes.values()} == {b"1"}
    counts = {k.decode(): int(v) for k, v in hashes[KEYS.counts].items() if int(v)}
    return {
        "map": (await redis.get(KEYS.map + "A")).decode(), "counts": counts, "holds": sorted(hashes[KEYS.holds]),
        "deadlines": [reservation_id for reservation_id, _ in await deadlines(redis)], "usage": hashes[KEYS.usage],
        "holding": await redis.hget(KEYS.meta, "holding"),
    }  # fmt: skip


async def deadlines(redis: Redis) -> list[tuple[bytes, float]]:
    everything = await redis.zrange(KEYS.deadlines, 0, -1, withscores=True)
    assert everything.pop() == (EPOCH, float("inf"))
    return [(reservation_id, at_ms) for reservation_id, at_ms in everything]


@pytest.mark.parametrize(
    ("verb", "package"),
    [*((verb, redis_client.__package__) for verb in redis_client.VERBS), ("read_seats", "features.hall.inventory")],
)
def test_every_script_is_called_as_its_header_says(verb: str, package: str) -> None:
    script = load_script(verb, package)
    source = files(package).joinpath("lua", f"{verb}.lua").read_text()
    code = "\n".join(line for line in source.splitlines() if not line.startswith("--"))
    slots = [n for n, slot in enumerate(script.arguments, 1) if not slot.is_list]
    used = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", code)}
    assert set(slots) <= used <= set(range(1, len(script.arguments) + 1))
    named, keys = {slot.name for slot in script.keys if not slot.is_list}, set(re.findall(r"\bkeys\.(\w+)", code))
    by_prelude = {"dirty", "map"}  # `count` and `set_marks` use these
    assert named - by_prelude <= keys <= named
    assert re.findall(r"KEYS\[\d+\]", code) == []
    with pytest.raises(TypeError, match="missing or unknown"):
        script.bind({"nonsense": 1})


async def test_a_selection_is_held_whole_or_not_at_all(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0,1;GA*3")
    before = await state(redis)
    assert (before["map"], before["counts"]) == (
        "hh..|....", {"A:available": 6, "A:held": 2, "GA:available": 7, "GA:held": 3}
    )  # fmt: skip
    assert await denial(redis_stock, "A:1,2;GA*1", reservation_id="r2", holder="other") == ("seats-taken", "A:1")
    assert await denial(redis_stock, "A:2;GA*8", reservation_id="r3", holder="third") == ("sold-out", "GA*7")
    assert await denial(redis_stock, "A:3,4", reservation_id="r4", holder="fourth") == ("seats-taken", "A:4"), (
        "the end of a row is not a seat"
    )
    assert await state(redis) == before


async def test_seats_between_the_requested_ones_stay_unchanged(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0,2,3,6;GA*1")
    held = await state(redis)
    assert (held["map"], held["counts"]["A:held"], held["counts"]["A:available"]) == ("h.hh|.h..", 4, 4)
    refused = await denial(redis_stock, "A:1,2,3,5,6", reservation_id="r2", holder="other")
    assert refused == ("seats-taken", "A:2;A:3;A:6")
    await redis_stock.follow(EVENT, [ended("r1", 2)])
    assert (await state(redis))["map"] == "....|...."


async def test_every_change_is_published_once(redis: Redis) -> None:
    redis_stock = await open_stock(redis)

    async def published() -> bool:
        times = {"clock_offset_ms": 0, "others_ms": now_ms()}
        return bool(await redis_stock.call("publish", EVENT, **times, force=0, peek=0))

    assert (await published(), await published()) == (True, False)
    several = [
        hold_arguments("A:0;GA*1"),
        hold_arguments("A:1", reservation_id="r2"),
        hold_arguments("GA*2", reservation_id="r3"),
    ]
    for change in (
        redis_stock.hold(EVENT, several),
        redis_stock.follow(EVENT, [ended("r1", 2)]),
        redis_stock.follow(EVENT, [bought("r2"), bought("r3")]),
        redis_stock.follow(EVENT, places=[{"from": ".", "to": "x", "seats": "A:5"}]),
    ):
        await change
        assert (await published(), await published()) == (True, False)


async def test_a_repeated_hold_changes_nothing_and_another_selection_is_refused(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    first = await grant(redis_stock, "A:0;GA*2")
    before = await state(redis)
    for reservation_id in ("r1", "r2"):
        again = await grant(redis_stock, "A:0;GA*2", reservation_id=reservation_id)
        assert (again.outcome, again.reservation_id, again.until_ms) == ("again", "r1", first.until_ms)
    assert await denial(redis_stock, "A:1") == ("reused", "")
    assert await state(redis) == before


async def test_a_refusal_names_the_exceeded_limit(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "GA*2", tickets_max=3, live_max=1)
    live = await denial(redis_stock, "GA*1", reservation_id="r2", tickets_max=3, live_max=1)
    tickets = await denial(redis_stock, "GA*3", reservation_id="r3", tickets_max=3)
    assert live == ("limit-exceeded", "active_reservations_per_customer")
    assert tickets == ("limit-exceeded", "tickets_per_customer")


async def test_a_refusal_names_at_most_twenty_due_holds_and_releases_none(redis: Redis) -> None:
    redis_stock = await open_stock(redis, ga=30)
    for i in range(30):
        await grant(redis_stock, "GA*1", reservation_id=f"r{i:02}", holder=f"fan-{i}")
    redis_stock.clock_offset_ms = 3_600_000
    before = await state(redis)
    (refused,) = await redis_stock.hold(EVENT, [hold_arguments("GA*1", reservation_id="late", holder="late")])
    assert isinstance(refused, HoldDenied)
    assert len(refused.due) == 20
    assert await state(redis) == before


async def test_a_clock_set_back_lowers_no_new_deadline(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    redis_stock.clock_offset_ms = 60_000
    ahead = await grant(redis_stock, "A:0")
    redis_stock.clock_offset_ms = 0
    behind = await grant(redis_stock, "A:1", reservation_id="r2", holder="other")
    assert behind.until_ms >= ahead.until_ms


async def test_a_closed_redis_stock_holds_nothing(redis: Redis) -> None:
    assert await denial(RedisStock(redis), "GA*1") == ("not-ready", "")
    assert await redis.keys("*") == []


async def test_repeated_releases_and_confirmations_change_nothing(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    fresh = await state(redis)
    await grant(redis_stock, "A:0;GA*2", reservation_id="r0")
    await redis_stock.follow(EVENT, [ended("r0", 2), ended("r0", 2)])
    await redis_stock.follow(EVENT, [ended("r0", 2)])
    assert await state(redis) == fresh
    await grant(redis_stock, "A:0;GA*2")
    await redis_stock.follow(EVENT, [bought("r1")])
    sold = await state(redis)
    assert (sold["map"], sold["counts"]) == (
        "s...|....", {"A:available": 7, "A:sold": 1, "GA:available": 8, "GA:sold": 2}
    )  # fmt: skip
    assert sold["usage"] == {b"t:fan": b"3"}
    for late in (bought("r1"), ended("r1", 2), ended("r1", 4), live("r1", 1, until_ms=9**13)):
        await redis_stock.follow(EVENT, [late])
        assert await state(redis) == sold


async def test_a_late_confirmation_of_the_write_neither_lowers_nor_restores_a_deadline(redis: Redis) -> None:
    """Fans do not wait for the confirmation in Redis, so an extension, a payment or a release may come first."""
    redis_stock = await open_stock(redis)
    for position, name in enumerate(("new", "extended", "paid", "ended")):
        await grant(redis_stock, f"A:{position}", reservation_id=name, holder=name)
    before = {name.decode(): int(at_ms) for name, at_ms in await deadlines(redis)}
    later = before["new"] + 60_000
    extended = live("extended", 2, until_ms=later + 60_000, has="A:1")
    paid = live("paid", 2, until_ms=later, paying=True, has="A:2")
    assert await redis_stock.follow(EVENT, [extended, paid, ended("ended", 2)]) == "done"
    for _ in range(2):
        await redis_stock.follow(EVENT, [written(name, later) for name in (*before, "unknown")])
    after = {name: int(at_ms) for name, at_ms in await deadlines(redis)}
    assert after == {b"new": later, b"extended": later + 60_000}


async def test_a_payment_removes_the_deadline_and_its_end_restores_it(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0")
    for _ in range(2):
        await redis_stock.follow(EVENT, [live("r1", 2, until_ms=1_000, paying=True)])
        assert (await state(redis))["deadlines"] == []
    await redis_stock.follow(EVENT, [{**live("r1", 3, until_ms=1_000), "release_at": 1_500}])
    assert await redis.zscore(KEYS.deadlines, "r1") == 1_500
    await redis_stock.follow(EVENT, [live("r1", 2, until_ms=1_000, paying=True)])
    await redis_stock.follow(EVENT, [live("r1", 4, until_ms=9_500), live("unknown", 2, until_ms=9_000)])
    assert await deadlines(redis) == [(b"r1", 9_500.0)]


async def test_a_repeated_reacquisition_sells_once_and_overrules_a_newer_hold(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0", reservation_id="new", holder="new")
    for _ in range(2):
        await redis_stock.follow(EVENT, [bought("r1", 4, holder="fan", has="A:0;GA*2")], epoch=1)
    after = await state(redis)
    assert (after["map"], after["counts"]) == (
        "s...|....", {"A:available": 7, "A:sold": 1, "GA:available": 8, "GA:sold": 2}
    )  # fmt: skip
    await redis_stock.follow(EVENT, [ended("new", 0)])
    assert (await state(redis))["map"] == "s...|....", "the release of the losing hold must not free the sold seat"


async def test_a_hold_that_redis_lost_is_restored_unless_it_has_ended_meanwhile(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0")
    before = await state(redis)
    hold = {**live("r1", 1, until_ms=9**13), "holder": "fan", "stock": "A:0", "body": ""}
    await redis.hdel(KEYS.holds, "r1")
    await redis.hdel(KEYS.usage, "l:fan")
    await redis.hincrby(KEYS.meta, "holding", -1)
    await redis_stock.follow(EVENT, [hold])
    assert (await state(redis))["holds"] == [], "a call that no comparison came before restores nothing"
    await redis_stock.follow(EVENT, [hold], epoch=1)
    assert await state(redis) == before
    await redis_stock.follow(EVENT, [ended("r1", 2)])
    free = await state(redis)
    await redis_stock.follow(EVENT, [hold], epoch=1)
    assert await state(redis) == free


async def test_what_has_ended_is_remembered_for_minutes_and_then_forgotten(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await redis_stock.follow(EVENT, [bought("r1", 4, holder="fan", has="A:0;GA*2")], epoch=1)
    sold = await state(redis)
    for generation, kept in ((KEYS.gone, True), (KEYS.gone_before, True), (KEYS.gone_before, False)):
        assert await redis.hexists(generation, "r1") == kept
        await redis_stock.follow(EVENT, [bought("r1", 4, holder="fan", has="A:0;GA*2")] if kept else [], epoch=1)
        assert await state(redis) == sold
        await redis.hset(KEYS.meta, "gone_since", int(time.time()) - 121)
        await redis_stock.follow(EVENT, [ended(f"other-{generation}", 2)])
    assert await redis.hmget(KEYS.gone, EPOCH, "r1") == [b"1", None]


async def test_a_refusal_drops_no_hold_that_has_changed_since_it_was_written(redis: Redis) -> None:
    """A process was refused late, and another one had written the same hold meanwhile."""
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0")
    await redis_stock.follow(EVENT, [live("r1", 2, until_ms=9**13, paying=True)])
    paying = await state(redis)
    await redis_stock.follow(EVENT, [ended("r1", 0)])
    assert await state(redis) == paying


async def test_corrections_follow_the_database(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    corrections: list[Change] = [
        {"from": ".", "to": "s", "seats": "A:0"}, {"from": "h", "to": "s", "seats": "A:1"},
        {"id": "GA", "off": {"available": 4, "sold": -4}},
    ]  # fmt: skip
    assert await redis_stock.follow(EVENT, places=corrections, epoch=1) == "done"
    after = await state(redis)
    assert after["map"] == "s...|....", "a seat that changed since it was read stays unchanged"
    assert after["counts"] == {"A:available": 7, "A:sold": 1, "GA:available": 6, "GA:sold": 4}
    assert await redis_stock.follow(EVENT, places=[{"id": "GA", "off": {"available": 4}}], epoch=2) == "superseded"
    assert await state(redis) == after, "another stock was compared"


async def test_a_correction_of_a_seat_that_the_map_does_not_have_closes_the_stock(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await redis.set(KEYS.map + "A", "....|")
    assert await redis_stock.follow(EVENT, places=[{"from": "?", "to": ".", "seats": "A:5"}], epoch=1) == "not-ready"
    assert await redis.hget(KEYS.meta, "ready") == b"0", "it is rebuilt"


async def test_what_is_left_after_a_refused_hold_lowers_what_is_available_and_never_raises_it(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    for left, available in ((20, 7), (2, 2), (5, 5), (9, 7)):
        section = {"id": "GA", "capacity": 10, "blocked": 3, "left": left}
        assert await redis_stock.follow(EVENT, places=[section], version=1) == "done"
        assert (await state(redis))["counts"] == {"A:available": 8, "GA:available": available, "GA:blocked": 3}


async def test_a_pass_is_revoked_only_while_its_holder_holds_nothing(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    held = await grant(redis_stock, "A:0")
    assert await redis_stock.revoke(EVENT, [("j", "fan", 9**12)]) == [("live", held.until_ms)]
    await redis_stock.follow(EVENT, [ended("r1", 2)])
    assert await redis_stock.revoke(EVENT, [("j", "fan", 9**12)]) == [("gone", None)]
    assert await denial(redis_stock, "A:0") == ("revoked", "")


async def test_a_rebuild_with_an_older_epoch_is_refused(redis: Redis) -> None:
    await open_stock(redis)
    assert await begin_rebuild(redis, epoch=3) == b"done"
    before = await redis.hgetall(KEYS.counts)
    [section] = follow_calls(places=[{"id": "GA", "counts": {"available": 99}}], epoch=2, rebuild=True)
    assert await begin_rebuild(redis, epoch=2) == b"superseded"
    steps: list[tuple[str, dict[str, Any]]] = [
        ("follow", section),
        ("rebuild_revoked", {"epoch": 2, "passes": []}),
        ("rebuild_renew", {"epoch": 2, "clock_offset_ms": 0}),
    ]
    for verb, arguments in steps:
        assert await RedisStock(redis).call(verb, EVENT, **arguments) == b"superseded", verb
    assert await finish_rebuild(redis, epoch=2, parts=[]) == b"superseded"
    assert await redis.hgetall(KEYS.counts) == before


async def test_a_hold_of_another_holder_is_not_repeated(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0")
    before = await state(redis)
    assert await denial(redis_stock, "A:0", holder="thief") == ("reused", "")
    assert await state(redis) == before


async def test_the_minimum_epoch_in_redis_never_falls(redis: Redis) -> None:
    redis_stock = await open_stock(redis)
    for epoch in (3, 2):
        await redis_stock.set_min_pass_epoch(EVENT, epoch)
    assert await redis.hget(KEYS.meta, "min_pass_epoch") == b"3"
