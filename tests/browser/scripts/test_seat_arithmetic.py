"""The page's script computes what the servers compute: places of seats and states of seats, for random halls."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.hall import seat_codes
from features.hall.hall_map import COORDINATE_MAX, Block, Rows, hall_geometry, is_inside, row_of_seats
from shared.contracts.event_parts.seat_labels import LabelsPart, SeatLabels
from tests.browser.scripts.node import Scripts, needs_node, scripts

SCRIPTS = ("hall/geometry.js", "hall/seat_codes.js", "hall/seat_states.js")
pytestmark = needs_node
numbers = st.floats(-90, 90, allow_nan=False)
blocks = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(1, 300)).map(
        lambda given: Block("", given[0], given[1] if given[0] else 0, given[0] * given[1] or given[2])
    ),
    min_size=1, max_size=9,
).map(lambda found: [block._replace(section_id=f"S{n}") for n, block in enumerate(found)])  # fmt: skip


LABELLED = LabelsPart(
    rows=["B", "A", {"row": "AA", "seats": "consecutive from 101"}, *"ZYXWVU"], seats="odd from the right"
)


def labels_of(block: Block) -> SeatLabels:
    """Every second section has labels."""
    is_labelled = block.rows and int(block.section_id[1:]) % 2 == 0
    labels = LABELLED.model_copy(update={"rows": (LABELLED.rows or [])[: block.rows]}) if is_labelled else None
    return SeatLabels.of(block.rows, block.seats_per_row, labels)


@pytest.fixture(scope="module")
def script() -> Iterator[Scripts]:
    with scripts(*SCRIPTS) as running:
        yield running


def places(script: Scripts, geometry: Any) -> list[tuple[int, int]]:
    found = script.evaluate("""given => { const { x, y } = new scripts.Geometry(JSON.parse(given));
        return Array.from(x, (at, n) => [at, y[n]]); }""", json.dumps(geometry))  # fmt: skip
    return [(x, y) for x, y in found]


@given(at=st.tuples(st.integers(0, 3000), st.integers(0, 3000)), pitch=numbers, spacing=st.floats(0.001, 90),
       curve=st.floats(-0.01, 0.01), angle=st.floats(-360, 360),
       rows=st.integers(1, 9), seats=st.integers(1, 40))  # fmt: skip
def test_a_seat_lies_where_the_servers_say(
    script: Scripts,
    at: tuple[int, int],
    pitch: float,
    spacing: float,
    curve: float,
    angle: float,
    rows: int,
    seats: int,
) -> None:
    lines = Rows(at, pitch, spacing, curve, angle)
    expected = [place for row in range(rows) for place in row_of_seats(lines, row, seats)]
    outline = [[0, 0], [COORDINATE_MAX, 0], [COORDINATE_MAX, COORDINATE_MAX]]
    section = {"section_id": "A", "outline": outline, "rows": {**lines._asdict(), "count": rows, "seats": seats}}
    size = [COORDINATE_MAX, COORDINATE_MAX]
    assert places(script, {"size": size, "stage": None, "sections": [section]}) == expected


@given(blocks)
def test_a_hall_that_lays_itself_out_lies_the_same_and_each_seat_is_found(
    script: Scripts, given_blocks: list[Block]
) -> None:
    geometry = hall_geometry(given_blocks, None, {block.section_id: labels_of(block) for block in given_blocks[::2]})
    expected = [
        place for shape in geometry.sections if shape.rows
        for lines in [Rows(**shape.rows.model_dump(exclude={"count", "seats", "labels", "traits"}))]
        for row in range(shape.rows.count) for place in row_of_seats(lines, row, shape.rows.seats)
    ]  # fmt: skip
    given_geometry = geometry.model_dump(mode="json")
    assert places(script, given_geometry) == expected
    names = [f"{block.section_id}-{row}-{seat}" for block in given_blocks
             for row, seats in labels_of(block).front(block.rows) for seat in seats]  # fmt: skip
    assert script.evaluate("""given => { const hall = new scripts.Geometry(JSON.parse(given));
        return Array.from(hall.x, (_, n) => {
            const { id } = hall.nameOf(n);
            const near = hall.seatNear(hall.x[n], hall.y[n], 2);
            const right = hall.seatOf(id) === n && hall.x[near] === hall.x[n] && hall.y[near] === hall.y[n];
            return right ? id : `${id} is not seat ${n}`;
        }); }""", json.dumps(given_geometry)) == names  # fmt: skip


@given(st.binary(max_size=200).map(lambda data: bytes(byte & 3 for byte in data)), st.data())
def test_states_and_changes_are_read_as_they_were_written(script: Scripts, codes: bytes, data: st.DataObject) -> None:
    after = bytes(data.draw(st.sampled_from([code, 0, 1, 2, 3])) for code in codes)
    seats = seat_codes.differing(codes, after)
    written = [list(part) for part in (
        seat_codes.encode_state(3, 2**41 + 5, codes), seat_codes.pack(codes), seat_codes.encode_changes(after, seats),
    )]  # fmt: skip
    version, state, packed, changed = script.evaluate("""([state, packed, changes, seats]) => {
        const { version, codes } = scripts.decodeState(new Uint8Array(state).buffer);
        const after = codes.slice();
        scripts.readChanges(new Uint8Array(changes), seats, (seat, code) => { after[seat] = code; });
        return [version, [...codes], [...scripts.unpack(new Uint8Array(packed), seats)], [...after]]; }""",
        [*written, len(codes)])  # fmt: skip
    assert (version, bytes(state), bytes(packed), bytes(changed)) == (2**41 + 5, codes, codes, after)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_what_is_no_state_is_refused_alike(script: Scripts, data: bytes, seats: int) -> None:
    def refused(read: Any, *given: Any) -> bool:
        try:
            read(*given)
        except ValueError:
            return True
        return False

    expected = [refused(seat_codes.decode_state, data), refused(seat_codes.unpack, data, seats),
                refused(seat_codes.apply_changes, bytes(seats), data)]  # fmt: skip
    found = script.evaluate("""([data, seats]) => {
        const bytes = new Uint8Array(data);
        const refused = (read) => {
            try { read(); } catch (problem) { return problem instanceof RangeError; }
            return false; };
        return [() => scripts.decodeState(bytes.buffer), () => scripts.unpack(bytes, seats),
            () => scripts.readChanges(bytes, seats, () => {})].map(refused); }""",
        [list(data), seats])  # fmt: skip
    assert found == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=9),
       st.tuples(st.integers(0, 50), st.integers(0, 50)))  # fmt: skip
def test_a_section_is_hit_where_the_servers_say(
    script: Scripts, outline: list[tuple[int, int]], point: tuple[int, int]
) -> None:
    found = script.evaluate("([outline, [x, y]]) => scripts.isInside(outline, x, y)", [outline, point])
    assert found == is_inside(outline, point)


@given(st.data())
def test_frames_in_any_order_end_in_the_servers_state(script: Scripts, data: st.DataObject) -> None:
    """Snapshots and changes, lost, repeated and out of order, and states read in between."""
    seats = 40
    history = [bytes(seats)]
    for _ in range(data.draw(st.integers(1, 8))):
        codes = bytearray(history[-1])
        for seat in data.draw(st.lists(st.integers(0, seats - 1), max_size=5)):
            codes[seat] = data.draw(st.integers(0, 3))
        history.append(bytes(codes))
    last = len(history)
    frames: list[dict[str, Any]] = []
    for _ in range(data.draw(st.integers(0, 12))):
        version = data.draw(st.integers(2, last)) if last > 1 else 1
        after = data.draw(st.integers(1, version - 1)) if version > 1 else 0
        touched = {seat for n in range(after, version) for seat in seat_codes.differing(history[n - 1], history[n])}
        changes = seat_codes.encode_changes(history[version - 1], sorted(touched))
        snapshot = {"v": version, "s": list(seat_codes.pack(history[version - 1]))}
        frames.append(data.draw(st.sampled_from([snapshot, {"v": version, "after": after, "d": list(changes)}])))
    frames.append({"v": last + 1, "after": last, "d": []})
    state = list(seat_codes.encode_state(1, last + 1, history[-1]))
    shown = script.evaluate("""async ([frames, state, seats]) => {
        const geometry = { count: seats, byId: new Map() };
        const feed = { hearsSeats: true, showSeats() {} };
        globalThis.fetch = async () => ({ ok: true, arrayBuffer: async () => new Uint8Array(state).buffer });
        const states = new scripts.SeatStates({ eventId: "e", geometry, feed });
        const text = (bytes) => bytes && btoa(String.fromCharCode(...bytes));
        for (const frame of frames) states.hear({ ...frame, s: text(frame.s), d: text(frame.d) });
        await new Promise((resume) => setTimeout(resume, 5));
        return [...states.codes]; }""", [frames, state, seats])  # fmt: skip
    assert bytes(shown) == history[-1]


def test_frames_of_the_whole_hall_are_taken_as_such_by_a_page_that_asked_for_sections(script: Scripts) -> None:
    seats = 50_004
    codes = bytearray(seats)
    codes[1] = codes[50_002] = 2
    packed = seat_codes.pack(bytes(codes))
    changed = bytearray(codes)
    changed[50_003] = 1
    delta = seat_codes.encode_changes(bytes(changed), [50_003])
    shown = script.evaluate("""([packed, delta, seats]) => {
        const section = (first, rows, seats) => ({ first, rows, seats });
        const byId = new Map([["A", section(0, 100, 500)], ["B", section(50000, 1, 4)]]);
        const feed = { hearsSeats: true, showSeats() {} };
        globalThis.fetch = async () => ({ ok: false });
        const states = new scripts.SeatStates({ eventId: "e", geometry: { count: seats, byId }, feed });
        states.watch();
        states.focusOn(["B"]);
        const text = (bytes) => btoa(bytes.map((byte) => String.fromCharCode(byte)).join(""));
        states.hear({ v: 2, s: text(packed), all: true });
        states.hear({ v: 3, after: 2, d: text(delta), all: true });
        return [states.codes[1], ...states.codes.slice(50000)]; }""", [list(packed), list(delta), seats])  # fmt: skip
    assert shown == [2, 0, 0, 2, 1]
