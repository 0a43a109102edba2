"""Rebuild of the Redis stock: a Redis that lost its data sells nothing until it is rebuilt, without an operator; one
key that is lost, by eviction or by hand, is detected, and never counts as an empty one.
"""

import asyncio
import itertools
import json
import time
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock import rebuild
from services.inventory.redis_stock.client import VERBS, Change, RedisStock, ended
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from shared.runtime.clock import now_ms
from tests.inventory.actions import block, buy, end_sessions, is_clean, pause_after, reconcile, sell, sql
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.redis_stock.test_scripts import EVENT as SCRIPT_EVENT
from tests.inventory.redis_stock.test_scripts import KEYS as SCRIPT_KEYS
from tests.inventory.redis_stock.test_scripts import (
    begin_rebuild,
    bought,
    finish_rebuild,
    grant,
    hold_arguments,
    live,
    open_stock,
)
from tests.support.running.suite import problem
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)


@pytest.mark.usefixtures("loops")
async def test_the_invariants_hold_after_redis_is_flushed_during_a_sale(inventory: Inventory) -> None:
    state = inventory.state
    answers: list[int] = []

    async def fan(i: int) -> None:
        for seat in ("A-1-1", f"A-{i % 3 + 1}-{i % 5 + 1}", f"B-{i % 2 + 1}-{i % 4 + 1}"):
            answer = await inventory.reserve(f"fan-{i}", seats=[seat], ga_section="GA1", ga_quantity=1)
            answers.append(answer.status_code)

    paid = await inventory.hold("payer", seats=["A-3-5"], ga_section="GA1", ga_quantity=2)
    await inventory.step("begin-payment", paid, "order-1")
    selling = asyncio.gather(*(fan(i) for i in range(25)))
    await wait_until(lambda: len(answers) > 5)
    await state.redis_stock.redis.flushall()
    await selling
    started = time.monotonic()
    await inventory.until_ready()
    assert time.monotonic() - started < 1.0
    assert set(answers) <= {201, 409, 503}
    assert await inventory.outcome("confirm", paid, "order-1") == "done"
    await wait_until(lambda: is_clean(inventory))


async def test_a_rebuild_wakes_the_loop_that_ends_its_holds(inventory: Inventory, woken: list[str]) -> None:
    await inventory.hold("fan", seats=["A-1-1"])
    await inventory.state.redis_stock.redis.flushall()
    woken.clear()
    await inventory.state.redis_monitor.check()
    assert woken == ["inventory"]


async def test_a_closed_redis_stock_answers_503_with_retry_after(inventory: Inventory) -> None:
    await inventory.state.redis_stock.redis.hset(KEYS.meta, mapping={"ready": "0", "rebuild_renewed_at": str(9**15)})
    answer = await inventory.reserve(seats=["A-1-1"])
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    sections = await inventory.fans.get(f"/events/{EVENT}/sections")
    assert [s["available_seats"] for s in sections.json()["sections"]] == [15, 8, 20], "the database answers meanwhile"


@pytest.mark.usefixtures("loops")
async def test_redis_restored_from_an_older_snapshot_is_rebuilt(inventory: Inventory) -> None:
    """Another Redis process with an older snapshot: every key exists, but held seats are free again."""
    redis = inventory.state.redis_stock.redis
    keys = await redis.keys("inventory:*")
    older = {key: value for key in keys if (value := await redis.dump(key)) is not None}
    await inventory.hold(seats=["A-1-1"])
    for key, value in older.items():
        await redis.restore(key, 0, value, replace=True)
    await redis.hset(KEYS.meta, "redis_instance_id", "the process before")

    async def rebuilt() -> bool:
        return await inventory.counts("A") == (14, 1)

    await wait_until(rebuilt, timeout_s=2)
    await inventory.until_ready()
    assert problem(await inventory.reserve("other", seats=["A-1-1"])) == (409, "seats-taken")
    assert await inventory.violations() == []


async def test_concurrent_rebuilds_end_in_one_open_redis_stock(inventory: Inventory) -> None:
    state = inventory.state
    await inventory.reserve(seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    monitors = [RedisStockMonitor(state.db, state.redis_stock, state.catalogue) for _ in range(3)]
    await state.redis_stock.redis.flushall()
    await asyncio.gather(*(monitor.check() for monitor in monitors))
    await inventory.until_ready()
    assert (await inventory.counts("A"), await inventory.counts("GA1")) == ((14, 1), (18, 2))
    assert await inventory.violations() == []


async def test_a_slow_rebuild_is_left_to_the_process_that_began_it(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large stock takes longer to read than the rebuild lease lasts, and another process checks repeatedly."""
    state = inventory.state
    monkeypatch.setattr(rebuild, "RENEW_INTERVAL_S", 0.05)
    _, checked = pause_after(monkeypatch, rebuild, "read_stock")

    async def renewed_at_ms() -> int:
        return int(await state.redis_stock.redis.hget(KEYS.meta, "rebuild_renewed_at") or 0)

    await state.redis_stock.redis.flushall()
    before = state.catalogue.layout(EVENT).redis_epoch
    rebuilding = asyncio.create_task(state.redis_monitor.check())
    other = RedisStockMonitor(state.db, state.redis_stock, state.catalogue)
    await wait_until(renewed_at_ms)
    for _ in range(3):
        at_ms = await renewed_at_ms()
        inventory.travel(rebuild.REBUILD_LEASE_MS - 1_000)

        async def is_renewed(since_ms: int = at_ms) -> bool:
            return await renewed_at_ms() >= since_ms + rebuild.REBUILD_LEASE_MS - 1_000

        await wait_until(is_renewed)
        await other.check()
    checked.set()
    await rebuilding
    await inventory.until_ready()
    assert (await sql(inventory, "SELECT redis_epoch FROM inventory.event"))[0].redis_epoch == before + 1


async def test_the_lease_of_a_rebuild_that_failed_ends_although_its_cancellation_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class LosesOneCancellation:
        """As Python 3.11's `wait_for`, when its wait ends at that moment."""

        clock_offset_ms, renewals = 0, 0

        async def call(self, *_: object, **__: object) -> None:
            self.renewals += 1
            with suppress(*[asyncio.CancelledError] if self.renewals == 1 else []):
                await asyncio.Event().wait()

    monkeypatch.setattr(rebuild, "RENEW_INTERVAL_S", 0.001)
    redis_stock: Any = LosesOneCancellation()
    async with rebuild._renewing(redis_stock, EVENT, 1):
        await wait_until(lambda: redis_stock.renewals)
    assert "inventory.renew" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.usefixtures("loops")
async def test_a_rebuilt_redis_stock_equals_the_lost_one(inventory: Inventory) -> None:
    redis = inventory.state.redis_stock.redis
    held = await inventory.hold("one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    paying = await inventory.hold("two", seats=["B-1-1"])
    sold = await inventory.hold("three", seats=["B-2-4"])
    await inventory.step("begin-payment", paying, "order-1")
    await buy(inventory, sold, "order-2")
    await end_sessions(inventory, "nobody")
    assert (await block(inventory, "A-2-1", ga=3)).is_success
    allotment = {"name": "Band", "kind": "house", "seats": ["A-2-2"], "ga": [{"section_id": "GA1", "quantity": 5}]}
    assert (await inventory.operate("PUT", "/allotments/band", **allotment)).is_success
    before = await stored(redis)
    assert (before["maps"][0], before["counts"]["GA1:blocked"]) == (b"h....|xx...|.....", 8)
    await redis.flushall()
    await inventory.until_ready()
    assert await stored(redis) == before
    assert [reservation_id for reservation_id, _ in before["deadlines"]] == [held.encode()]


async def stored(redis: Any) -> dict[str, Any]:
    """Everything that Redis stores of the stock."""
    hashes = [await redis.hgetall(key) for key in (KEYS.counts, KEYS.holds)]
    usage = await redis.hgetall(KEYS.usage)
    usage.pop(EPOCH)
    counts, holds = ({k.decode(): json.loads(v) for k, v in h.items() if k != EPOCH} for h in hashes)
    return {
        "holds": holds, "counts": counts, "usage": usage,
        "deadlines": await redis.zrangebyscore(KEYS.deadlines, "-inf", "(inf", withscores=True),
        "revoked": await redis.zrangebyscore(KEYS.revoked, "-inf", "(inf"),
        "holding": await redis.hget(KEYS.meta, "holding"),
        "maps": [await redis.get(KEYS.map + section) for section in "AB"],
    }  # fmt: skip


async def test_reconciliation_corrects_only_lasting_drift(inventory: Inventory) -> None:
    """A difference in one pass may be a change in progress; after five seconds it is drift."""
    state = inventory.state
    redis, reconciler = state.redis_stock.redis, state.reconciler
    await asyncio.gather(*(inventory.reserve(f"fan-{i}", seats=[f"A-1-{i + 1}"]) for i in range(3)))
    reconciler._last_pass.clear()
    await redis.setrange(KEYS.map + "A", 0, "s")  # a held seat marked as sold
    await redis.hincrby(KEYS.counts, "GA1:available", 5)
    await redis.hdel(KEYS.holds, next(key for key in await redis.hkeys(KEYS.holds) if key != EPOCH))
    await redis.hset(KEYS.usage, "t:ghost", "4")
    first = await reconcile(inventory, times=1)
    assert first.differences >= 4
    assert first.corrected == 0
    assert (await reconcile(inventory, times=1, after_s=4)).corrected == 0
    assert (await reconcile(inventory, times=1, after_s=2)).corrected >= 4
    assert (await reconcile(inventory, times=1)).differences == 0
    assert await inventory.violations() == []


async def test_reconciliation_corrects_a_section_and_its_unknown_hold_once(inventory: Inventory) -> None:
    """Redis has a hold that the database does not have: releasing it and correcting the counts is one correction."""
    await inventory.state.redis_stock.hold(EVENT, [hold_arguments("A:0;GA1*2", holder="ghost")])
    assert await inventory.redis_counts("GA1") == (18, 2)
    await reconcile(inventory)
    assert await inventory.redis_counts("GA1") == (20, 0)
    assert (await reconcile(inventory, times=1)).differences == 0


NAMES = ("meta", "counts", "holds", "deadlines", "usage", "revoked", "gone", "gone_before", "dirty", "map:A", "map:B")
MADE_ANEW = {"dirty"}  # its loss costs nothing
LIMITS = {"tickets_per_customer": 2, "active_reservations_per_customer": 2}
AVAILABLE = {"A": 13, "B": 7, "GA1": 18}


def key_of(name: str) -> str:
    return KEYS.meta.removesuffix("meta") + name


async def test_these_tests_cover_every_key_of_the_redis_stock(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-1-1"])
    keys = await inventory.state.redis_stock.redis.keys("inventory:*")
    assert {key.decode().removeprefix(key_of("")) for key in keys} - MADE_ANEW == {*NAMES} - MADE_ANEW
    assert {name.rstrip(":") for name in Keys.__slots__} == {name.split(":")[0] for name in NAMES}


async def sell_some(inventory: Inventory) -> None:
    """A fan at the limit, one who has bought, one with a GA hold, and one whose pass is revoked."""
    assert (await inventory.put(event_file(**LIMITS))).status_code == 200
    await inventory.state.redis_monitor.check()
    await inventory.hold("full", key="theirs", seats=["A-1-1"], ga_section="GA1", ga_quantity=1)
    await sell(inventory, "buyer", seats=["A-1-2", "B-1-1"])
    await inventory.hold("floor", ga_section="GA1", ga_quantity=1)
    await end_sessions(inventory, "nobody")


async def answers(inventory: Inventory, attempt: int) -> dict[str, tuple[int, str]]:
    """The answers to requests that should succeed and to requests that should be refused."""
    sent = {
        "a seat": await inventory.reserve(f"a{attempt}", seats=[f"A-2-{attempt}"]),
        "ga": await inventory.reserve(f"b{attempt}", ga_section="GA1", ga_quantity=1),
        "best available": await inventory.reserve(f"c{attempt}", best_available={"quantity": 1, "section_id": "B"}),
        "repeated": await inventory.reserve("full", key="theirs", seats=["A-1-1"], ga_section="GA1", ga_quantity=1),
        "taken": await inventory.reserve(f"d{attempt}", seats=["A-1-1"]),
        "too many": await inventory.reserve("full", seats=["A-3-5"]),
        "a revoked pass": await inventory.reserve("nobody", seats=["A-3-4"]),
    }
    return {name: (answer.status_code, answer.json().get("type", "")) for name, answer in sent.items()}


EXPECTED = {
    "a seat": (201, ""), "ga": (201, ""), "best available": (201, ""), "repeated": (201, ""),
    "taken": (409, "/problems/seats-taken"), "too many": (409, "/problems/limit-exceeded"),
    "a revoked pass": (401, "/problems/bad-credential"),
}  # fmt: skip
RETRY = (503, "/problems/unavailable")


@pytest.mark.parametrize("name", NAMES)
async def test_requests_after_a_lost_key_are_answered_correctly_or_with_503(inventory: Inventory, name: str) -> None:
    await sell_some(inventory)
    redis, epoch = inventory.state.redis_stock.redis, inventory.state.catalogue.layout(EVENT).redis_epoch
    await redis.delete(key_of(name))
    sections = (await inventory.fans.get(f"/events/{EVENT}/sections")).json()["sections"]
    assert {s["section_id"]: s["available_seats"] for s in sections} == AVAILABLE, "the database answers"
    received = await answers(inventory, 1)
    assert {what: answer for what, answer in received.items() if answer not in (EXPECTED[what], RETRY)} == {}
    assert name in MADE_ANEW or RETRY in received.values()
    await inventory.state.redis_monitor.check()
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch + (name not in MADE_ANEW)
    assert await answers(inventory, 2) == EXPECTED
    assert await inventory.violations() == []


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("meta", "counts", "map:A") else pytest.mark.proof) for n in NAMES]
)
@pytest.mark.usefixtures("loops")
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
BEST = {"quantity": 2, "price_blocks": [["A", 0, 8, 5]], "split": True, "tidy": True, "avoid": [{}], "types": ""}
REQUESTS = [hold_arguments("A:1,2;GA*1", **NEW), {**hold_arguments("", **NEW), "best": BEST}]
RETURNED = {"places": "A:5;GA*1", "mark": "x", "excess": {"GA": 1}, "n": 3}
RESERVATIONS: list[Change] = [
    live("r1", 2, until_ms=9**13, has="A:0"),
    ended("r1", 3),
    {**live("r2", 1, until_ms=9**13, has="A:3"), "holder": "other", "stock": "", "body": ""},
    bought("r3", 4, holder="fan", has="A:5;GA*1"),
    bought("r3", 5, holder="fan", returned=RETURNED),
]
ARGUMENTS: dict[str, Any] = {
    "rebuild": 0, "epoch": 1, "version": 2, "jti": "j", "holder": "nobody", "count_max": 10, "due_ms": 5_000,
    "clock_offset_ms": 0, "expires_at_ms": 9**12, "min_epoch": 2, "force": 1, "peek": 0, "passes": [9**13, "other"],
    "reservations": json.dumps(RESERVATIONS), "tickets": ["fan", 3], "known": 0, "sections": ["A"],
    "watched": "watched", "requests": [json.dumps(request) for request in REQUESTS],
}  # fmt: skip
PLACES: list[Change] = [
    {"from": ".h", "to": "x", "seats": "A:6,7"}, {"id": "GA", "capacity": 30, "blocked": 1, "left": 5},
    {"id": "GA", "off": {"held": 1}}, {"id": "GA", "counts": {"available": 9}},
]  # fmt: skip
CREATING = {"rebuild_begin", "finish_rebuild"}  # the one creates every key, the other checks all of them


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in CREATING])
async def test_no_script_recreates_a_lost_key_or_ignores_its_loss(redis: Redis, verb: str) -> None:
    values = {**ARGUMENTS, "others_ms": now_ms()}
    for key, places in itertools.product(SCRIPT_KEYS.parts(["A"]), PLACES if verb == "follow" else PLACES[:1]):
        redis_stock = await stock_without(redis, key)
        script = redis_stock.scripts[verb]
        names = {slot.name for slot in (*script.arguments, *script.keys)} - set(Keys.__slots__) - {"parts", "emptied"}
        arguments = {name: json.dumps(places) if name == "places" else values[name] for name in names}
        reply = await redis_stock.call(verb, SCRIPT_EVENT, **arguments)
        assert await redis.exists(key) == 0, key
        assert verb != "hold" or reply == [[b"not-ready"]] * 2, key
        assert verb != "follow" or (reply == b"not-ready") == (key != SCRIPT_KEYS.revoked), key


async def stock_without(redis: Redis, key: str) -> RedisStock:
    """A stock with one hold, which has lost this key."""
    await redis.flushall()
    redis_stock = await open_stock(redis)
    await grant(redis_stock, "A:0;GA*2")
    await redis.delete(key)
    return redis_stock


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
