"""The states of all seats: as the ledger has them, under a version that all processes share, for admitted fans only.

What is encoded is decoded to the same, in the promised sizes.
"""

import asyncio
import random
from base64 import b64decode
from functools import partial
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from features.hall import seat_codes
from features.hall.inventory.events import map_order
from features.hall.inventory.seat_states import SeatState, SeatStates, reading_key
from features.hall.seat_codes import SeatsFrame, seats_channel, seats_watched_key
from services.inventory.redis_keys import Keys
from services.inventory.reservations.code_tries import AT_ONCE
from shared.messaging.snapshots import SnapshotPublisher
from tests.inventory.actions import buy, sell
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.suite import bearer, problem
from tests.support.wait import wait_until

PATH = f"/events/{EVENT}/map/state"
RESERVED = f"/events/{EVENT}/map/reserved"
SEATS = 3 * 5 + 2 * 4
LEDGER = text("SELECT status FROM inventory.seat WHERE event_id = :event_id ORDER BY section_id, position")
CODES = {"available": 0, "held": 1, "sold": 2, "blocked": 3}


def forget_the_last(inventory: Inventory) -> None:
    seat_states = inventory.state.availability.watched
    assert isinstance(seat_states, SeatStates)
    seat_states._fresh.clear()


async def ask(inventory: Inventory, query: str = "", *, holder: str = "fan", **headers: str) -> httpx.Response:
    forget_the_last(inventory)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await inventory.fans.get(PATH + query, headers=bearer(make_pass(holder)) | named)


async def state(inventory: Inventory, query: str = "") -> tuple[int, int, bytes]:
    answer = await ask(inventory, query)
    assert answer.status_code == 200, answer.text
    return seat_codes.decode_state(answer.content)


async def ledger(inventory: Inventory) -> bytes:
    async with inventory.state.db.connect() as connection:
        statuses = (await connection.execute(LEDGER, {"event_id": EVENT})).scalars()
        return bytes(CODES[status] for status in statuses)


async def test_the_state_is_that_of_the_ledger_through_holds_sales_and_blocks(inventory: Inventory) -> None:
    assert (await state(inventory))[2] == bytes(SEATS) == await ledger(inventory)
    held = await inventory.hold(seats=["A-1-1", "A-1-2"])
    await sell(inventory, "buyer", seats=["B-2-4", "A-3-5"])
    assert (await inventory.operate("POST", "/seats/block", seats=["A-2-1"], reason="camera")).is_success
    epoch, version, codes = await state(inventory)
    assert codes == await ledger(inventory)
    assert (codes[0], codes[1], codes[5], codes[14], codes[SEATS - 1]) == (1, 1, 3, 2, 2)
    await inventory.fan_request("DELETE", held)
    later = await state(inventory)
    assert later[2] == await ledger(inventory)
    assert (later[0], later[1] > version, later[2][0]) == (epoch, True, 0)


async def test_seats_that_need_a_code_are_shown_as_held_and_free_when_they_open(inventory: Inventory) -> None:
    before = await state(inventory)
    rows = [{"section_id": "B", "rows": [2, 2]}]
    partner = {"name": "Partner", "kind": "presale", "codes": ["P"], "seats": ["A-2-1"], "rows": rows}
    assert (await inventory.operate("PUT", "/allotments/partner", **partner)).is_success
    _, version, codes = await state(inventory)
    assert version > before[1], "the same marks are another state"
    assert [n for n, code in enumerate(codes) if code == seat_codes.HELD] == [5, 19, 20, 21, 22]
    await sell(inventory, "buyer", seats=["B-2-1"], code="p")
    assert (await state(inventory))[2][19] == seat_codes.SOLD
    await inventory.operate("POST", "/allotments/partner/open")
    assert [n for n, code in enumerate((await state(inventory))[2]) if code] == [19]


ROW_B = {"section_id": "B", "rows": [2, 2]}
CLUB = {"name": "Club", "kind": "presale", "codes": ["CLUB"], "seats": ["A-1-5", "A-2-1", "A-3-2"], "rows": [ROW_B]}
OPEN_TO_CLUB = {"seats": 7, "free": {"A": [[4, 5], [11, 11]], "B": [[4, 7]]}}
NOTHING = {"seats": 0, "free": {}}


async def open_seats(inventory: Inventory, code: str = "", *, lane: int = 0, holder: str = "fan") -> dict[str, Any]:
    forget_the_last(inventory)
    query = {"code": code} if code else {}
    answer = await inventory.fans.get(RESERVED, params=query, headers=bearer(make_pass(holder, lane=lane)))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_who_has_a_code_or_came_by_a_lane_is_told_which_reserved_seats_are_free(inventory: Inventory) -> None:
    assert await open_seats(inventory, "club") == NOTHING, "nothing is reserved"
    assert (await inventory.operate("PUT", "/allotments/club", **CLUB)).is_success
    lane = {"name": "Lane 3", "kind": "presale", "lanes": [3], "seats": ["A-1-1"]}
    assert (await inventory.operate("PUT", "/allotments/third", **lane)).is_success
    assert await open_seats(inventory) == await open_seats(inventory, "other") == NOTHING
    assert await open_seats(inventory, "cl ub ") == OPEN_TO_CLUB
    assert await open_seats(inventory, lane=3) == {"seats": 1, "free": {"A": [[0, 0]]}}
    both = {"seats": 8, "free": {"A": [[0, 0], [4, 5], [11, 11]], "B": [[4, 7]]}}
    assert await open_seats(inventory, "CLUB", lane=3) == both
    event = (await inventory.fans.get(f"/events/{EVENT}")).json()
    assert (event["code_opens_places"], event["lane_opens_places"]) == (True, True)


async def test_what_is_taken_of_them_is_not_free_and_what_comes_back_is(inventory: Inventory) -> None:
    await inventory.operate("PUT", "/allotments/club", **CLUB)
    held = await inventory.hold("ann", seats=["A-2-1", "B-2-2"], code="CLUB")
    await sell(inventory, "buyer", seats=["A-3-2"], code="CLUB")
    left = {"seats": 7, "free": {"A": [[4, 4]], "B": [[4, 4], [6, 7]]}}
    assert await open_seats(inventory, "CLUB") == left
    await inventory.fan_request("DELETE", held, "ann")
    left = {"seats": 7, "free": {"A": [[4, 5]], "B": [[4, 7]]}}
    assert await open_seats(inventory, "CLUB") == left
    await inventory.operate("POST", "/allotments/club/open")
    assert await open_seats(inventory, "CLUB") == NOTHING, "they are everybody's"


async def test_postgresql_knows_what_is_free_of_them_while_redis_is_not_ready(inventory: Inventory) -> None:
    await inventory.operate("PUT", "/allotments/club", **CLUB)
    await inventory.hold("ann", seats=["A-2-1"], code="CLUB")
    await inventory.state.redis_stock.redis.hset(Keys.of(EVENT).meta, "ready", 0)
    assert await open_seats(inventory, "CLUB") == {"seats": 7, "free": {"A": [[4, 4], [11, 11]], "B": [[4, 7]]}}


async def test_all_who_have_the_same_code_get_the_same_bytes(inventory: Inventory, monkeypatch: Any) -> None:
    await inventory.operate("PUT", "/allotments/club", **CLUB)
    made, open_to = list[int](), SeatState.open_seats

    def counted(state: SeatState, *args: Any) -> Any:
        made.append(state.version)
        return open_to(state, *args)

    monkeypatch.setattr(SeatState, "open_seats", counted)
    for n in range(20):
        assert (await open_seats(inventory, "CLUB", holder=f"fan-{n}"))["seats"] == 7
    assert len(made) == 1
    first = await inventory.fans.get(f"{RESERVED}?code=CLUB", headers=bearer(make_pass("fan")))
    assert first.headers["cache-control"] == "private, no-cache"
    await inventory.hold("ann", seats=["A-3-5"])
    forget_the_last(inventory)
    known = {"if-none-match": first.headers["etag"]}
    again = await inventory.fans.get(f"{RESERVED}?code=CLUB", headers=bearer(make_pass("fan")) | known)
    assert (again.status_code, again.content) == (304, b""), "other seats changed"


async def test_guessing_codes_for_seats_of_the_map_is_limited(inventory: Inventory) -> None:
    await inventory.operate("PUT", "/allotments/club", **CLUB)
    for n in range(AT_ONCE):
        assert await open_seats(inventory, f"guess-{n}") == NOTHING
    headers = bearer(make_pass("fan"))
    refused = await inventory.fans.get(f"{RESERVED}?code=CLUB", headers=headers)
    assert problem(refused) == (429, "too-many-wrong-codes")
    assert int(refused.headers["retry-after"]) > 1
    assert await open_seats(inventory) == NOTHING, "without a code it goes on"
    assert await open_seats(inventory, "CLUB", holder="other") == OPEN_TO_CLUB
    assert problem(await inventory.fans.get(f"{RESERVED}?code={'x' * 5000}", headers=headers))[1] == "invalid-request"
    assert (await inventory.fans.get(RESERVED)).status_code == 401


@pytest.mark.parametrize("seed", range(3))
async def test_the_state_is_that_of_the_ledger_after_anything(inventory: Inventory, seed: int) -> None:
    """Fans and operators do this and that; every state is the ledger's, and the version rises with each change."""
    chosen = random.Random(seed)
    seats = [f"A-{row}-{number}" for row in (1, 2, 3) for number in range(1, 6)]
    held, last = list[tuple[str, str]](), await state(inventory)
    for n in range(25):
        match chosen.choice(["hold", "hold", "release", "sell", "block", "unblock"]):
            case "hold":
                answer = await inventory.reserve(f"fan-{n}", seats=chosen.sample(seats, 2))
                held += [(f"fan-{n}", answer.json()["reservation_id"])] if answer.status_code == 201 else []
            case "release" if held:
                holder, reservation_id = held.pop(chosen.randrange(len(held)))
                await inventory.fan_request("DELETE", reservation_id, holder)
            case "sell" if held:
                await buy(inventory, held.pop()[1], f"order-{n}")
            case "block" | "unblock" as verb:
                await inventory.operate("POST", f"/seats/{verb}", seats=chosen.sample(seats, 1), reason="camera")
        now = await state(inventory)
        assert now[2] == await ledger(inventory)
        assert (now[1] > last[1]) == (now[2] != last[2])
        last = now
    assert len(set(last[2])) > 1


async def test_fifty_thousand_seats_are_read_at_once(inventory: Inventory) -> None:
    file = event_file() | {"event_id": "stadium"}
    file["sections"] = [
        {"section_id": f"S{n}", "name": f"S{n}", "kind": "seated", "rows": 40, "seats_per_row": 50, "price_minor": 100}
        for n in range(25)
    ]
    assert (await inventory.put(file)).is_success
    await inventory.state.redis_monitor.check()
    await inventory.hold(event_id="stadium", seats=["S0-1-1", "S9-40-50"])
    headers = bearer(make_pass("fan", event_id="stadium"))
    answer = await inventory.fans.get("/events/stadium/map/state", headers=headers)
    _, version, codes = seat_codes.decode_state(answer.content)
    assert (version > 0, len(codes), codes.count(1), codes[0], codes[-1]) == (True, 50_000, 2, 1, 1)
    assert len(answer.content) == 20 + 12_500


async def test_a_version_names_one_state_in_every_process(inventory: Inventory) -> None:
    snapshots = SnapshotPublisher(inventory.state.redis_stock.redis)
    other = SeatStates(inventory.state.db, inventory.state.redis_stock, snapshots)
    layout = inventory.state.catalogue.layout(EVENT)
    first = await state(inventory)
    assert await state(inventory) == first, "nothing changed"
    await inventory.hold(seats=["A-1-1"])
    from_other = await other.read(layout)
    assert (from_other.epoch, from_other.version, from_other.codes) == await state(inventory)
    assert from_other.version > first[1]
    await inventory.state.redis_stock.redis.delete(reading_key(EVENT))
    assert (await state(inventory))[1] > from_other.version, "what was lost begins anew, later"


async def test_some_sections_are_read_in_map_order(inventory: Inventory) -> None:
    await inventory.hold(seats=["B-1-1"])
    assert (await state(inventory, "?sections=B"))[2] == bytes([1]) + bytes(7)
    assert (await state(inventory, "?sections=B,A"))[2] == bytes(15) + bytes([1]) + bytes(7)
    assert problem(await ask(inventory, "?sections=C")) == (404, "unknown-section")
    assert problem(await ask(inventory, "?sections=GA1")) == (404, "unknown-section")
    assert problem(await ask(inventory, "?sections=A,,B")) == (422, "invalid-request")


async def test_an_unchanged_state_is_not_sent_again(inventory: Inventory) -> None:
    first = await ask(inventory)
    epoch, version, _ = seat_codes.decode_state(first.content)
    assert (first.headers["etag"], first.headers["cache-control"]) == (f'"{epoch}.{version}"', "private, max-age=1")
    assert first.headers["content-type"] == "application/octet-stream"
    again = await ask(inventory, if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    await inventory.hold(seats=["A-1-1"])
    assert (await ask(inventory, if_none_match=first.headers["etag"])).status_code == 200


async def test_only_an_admitted_fan_reads_it(inventory: Inventory) -> None:
    assert (await inventory.fans.get(PATH)).status_code == 401
    session = {"jti": "jti-fan", "holder": "fan", "expires_at_ms": 2**42}
    await inventory.post_internal("/sessions/end", {"event_id": EVENT, "sessions": [session]})
    assert problem(await ask(inventory)) == (401, "bad-credential")
    assert (await ask(inventory, holder="other")).status_code == 200
    keys = Keys.of(EVENT)
    await inventory.state.redis_stock.redis.hset(keys.meta, mapping={"ready": 0, "rebuild_renewed_at": 9**15})
    assert problem(await ask(inventory)) == (401, "bad-credential"), "PostgreSQL knows it, too"


async def test_while_redis_is_not_ready_the_ledger_answers(inventory: Inventory) -> None:
    await inventory.hold(seats=["A-1-1"])
    await inventory.state.redis_stock.redis.hset(Keys.of(EVENT).meta, "ready", 0)
    answer = await ask(inventory)
    assert seat_codes.decode_state(answer.content)[1:] == (0, bytes([1]) + bytes(SEATS - 1))
    assert (answer.headers["cache-control"], "etag" in answer.headers) == ("no-store", False)


async def test_a_lost_map_is_not_read_as_free(inventory: Inventory) -> None:
    await inventory.hold(seats=["A-1-1"])
    redis, keys = inventory.state.redis_stock.redis, Keys.of(EVENT)
    await redis.delete(f"{keys.map}A")
    assert (await state(inventory))[1:] == (0, bytes([1]) + bytes(SEATS - 1))
    assert await redis.hget(keys.meta, "ready") == b"0", "the stock is rebuilt"


async def test_other_sections_of_the_layout_than_in_redis_read_the_ledger_or_wait(inventory: Inventory) -> None:
    """A process that does not know yet that a row was added mixes nothing up."""
    old = inventory.state.catalogue.layout(EVENT)
    async with inventory.state.db.begin() as connection:
        await connection.execute(text("DELETE FROM inventory.seat WHERE section_id = 'B'"))
        await connection.execute(
            text("UPDATE inventory.section SET rows = 1, capacity = 4, seats_remaining = 4 WHERE section_id = 'B'")
        )
    await inventory.state.redis_stock.redis.hincrby(Keys.of(EVENT).meta, "epoch", 1)
    assert map_order(old) == (("A", 15), ("B", 8))
    assert problem(await ask(inventory)) == (503, "unavailable")


@pytest.mark.usefixtures("loops")
async def test_seats_are_published_only_while_somebody_watches(inventory: Inventory) -> None:
    redis = inventory.state.redis_stock.redis
    pubsub = redis.pubsub()
    await pubsub.subscribe(seats_channel(EVENT))
    await inventory.hold("ann", seats=["A-1-1"])
    await wait_until(partial(is_published, redis))
    assert not await redis.exists(reading_key(EVENT)), "nobody read the seats"
    await state(inventory)
    assert not await redis.exists(f"{seats_channel(EVENT)}:log"), "nobody streams them"
    await redis.set(seats_watched_key(EVENT), 1, ex=60)
    await inventory.hold("ben", seats=["A-1-2"])
    frame = await received(pubsub, lambda frame: frame.seats != "")
    while unpacked(frame)[:2] != bytes([1, 1]):
        frame = await received(pubsub, lambda _: True)
    assert (frame.sections, frame.ready, frame.epoch) == (
        [("A", 15), ("B", 8)], True, inventory.state.catalogue.layout(EVENT).redis_epoch
    )  # fmt: skip
    assert (frame.epoch, frame.version, unpacked(frame)) == await state(inventory)
    await pubsub.aclose()


async def is_published(redis: Any) -> bool:
    return not await redis.exists(Keys.of(EVENT).dirty)


def unpacked(frame: SeatsFrame) -> bytes:
    return seat_codes.unpack(b64decode(frame.seats), sum(seats for _, seats in frame.sections))


async def received(pubsub: Any, wanted: Any) -> SeatsFrame:
    async with asyncio.timeout(5):
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
            if message and wanted(frame := SeatsFrame.model_validate_json(message["data"])):
                return frame


async def test_concurrent_readers_share_one_reading(inventory: Inventory, monkeypatch: Any) -> None:
    calls: list[str] = []
    call = inventory.state.redis_stock.call

    async def counted(verb: str, event_id: str, **arguments: Any) -> Any:
        calls.append(verb)
        return await call(verb, event_id, **arguments)

    monkeypatch.setattr(inventory.state.redis_stock, "call", counted)
    forget_the_last(inventory)
    headers = bearer(make_pass("fan"))
    answers: list[httpx.Response] = await asyncio.gather(
        *(inventory.fans.get(PATH, headers=headers) for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert calls.count("read_seats") == 1


STATES = st.binary(max_size=300).map(lambda data: bytes(byte & 3 for byte in data))
TWO_STATES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=400).map(
    lambda pairs: (bytes(one for one, _ in pairs), bytes(other for _, other in pairs))
)


@given(STATES, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_state_comes_back_as_it_was(codes: bytes, epoch: int, version: int) -> None:
    data = seat_codes.encode_state(epoch, version, codes)
    assert seat_codes.decode_state(data) == (epoch, version, codes)
    assert len(data) == 20 + (len(codes) + 3) // 4


@given(TWO_STATES)
def test_changes_lead_from_one_state_to_the_other(states: tuple[bytes, bytes]) -> None:
    before, after = states
    changed = seat_codes.differing(before, after)
    assert changed == [n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert seat_codes.apply_changes(before, seat_codes.encode_changes(after, changed)) == after


@given(STATES, st.data())
def test_changes_may_name_seats_that_are_the_same(codes: bytes, data: st.DataObject) -> None:
    seats = sorted(data.draw(st.sets(st.integers(0, len(codes) - 1), max_size=len(codes)))) if codes else []
    assert seat_codes.apply_changes(codes, seat_codes.encode_changes(codes, seats)) == codes


@pytest.mark.parametrize("gap", [0, 31, 32, 4095, 4096, 99_999])
def test_a_gap_of_any_length_is_bridged(gap: int) -> None:
    before = bytes(100_000)
    after = before[:gap] + b"\2" + before[gap + 1 :]
    assert seat_codes.apply_changes(before, seat_codes.encode_changes(after, [gap])) == after


def test_the_layout_of_bits_is_the_documented_one() -> None:
    codes = seat_codes.from_marks(b".hs|x.|h")
    assert codes == bytes([0, 1, 2, 3, 0, 1])
    assert seat_codes.pack(codes) == bytes([0b11_10_01_00, 0b01_00])
    assert seat_codes.encode_state(7, 9, codes)[:20] == b"OSS1\0\0\0\7" + b"\0" * 7 + b"\x09" + b"\0\0\0\6"
    assert seat_codes.encode_changes(codes, [1, 3]) == bytes([1 << 2 | 1, 1 << 2 | 3])


@pytest.mark.parametrize(("changes", "bytes_max"), [(1, 3), (10, 24), (50, 100), (200, 360)])
def test_a_window_of_twenty_thousand_seats_is_small(changes: int, bytes_max: int) -> None:
    held = set(random.Random(1).sample(range(20_000), changes))
    after = bytes(seat in held for seat in range(20_000))
    assert len(seat_codes.encode_changes(after, seat_codes.differing(bytes(20_000), after))) <= bytes_max
    assert len(seat_codes.pack(after)) == 5_000


@pytest.mark.parametrize("data", [b"", b"OSS1", b"OSS2" + bytes(16), b"OSS1" + bytes(15) + b"\5" + b"\0"])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|begins|seats"):
        seat_codes.decode_state(data)


@pytest.mark.parametrize("data", [b"\x80", b"\x10", b"\0\0\0\0\0"])
def test_what_are_no_changes_of_the_hall_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|no seat"):
        seat_codes.apply_changes(bytes(4), data)
