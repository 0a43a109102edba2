"""A hall that nobody has drawn: no two sections overlap, all seats lie in their outline, and it is always the same."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.hall import hall_layout
from features.hall.hall_layout import Block, Drawn, Hall, Point, Rows, arc, is_inside

SHAPES = st.one_of(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.just(0)),
    st.tuples(st.sampled_from([1, 1000]), st.sampled_from([1, 2]), st.just(0)),
    st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 1000]), st.just(0)),
    st.tuples(st.just(0), st.just(0), st.integers(0, 1_000_000)),
)
HALLS = st.lists(SHAPES, min_size=1, max_size=30)
SQUARE = ((0, 0), (300, 0), (300, 200), (0, 200))


def blocks(shapes: list[tuple[int, int, int]]) -> list[Block]:
    return [Block(f"S{n}", rows, seats, rows * seats or places) for n, (rows, seats, places) in enumerate(shapes)]


def all_seats(block: Block, section: Drawn) -> list[Point]:
    if section.rows is None:
        return []
    if block.capacity > 10_000:
        return hall_layout.edge_seats(section.rows, block.rows, block.seats_per_row)
    rows = (hall_layout.row_of_seats(section.rows, row, block.seats_per_row) for row in range(block.rows))
    return [point for row in rows for point in row]


def apart(one: Drawn, other: Drawn) -> bool:
    """Whether a side of one of two convex outlines separates them."""
    for outline in (one.outline, other.outline):
        for (x1, y1), (x2, y2) in zip(outline, outline[1:] + outline[:1], strict=True):
            first, second = (
                [(x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) for x, y in each.outline] for each in (one, other)
            )
            if max(first) < min(second) or max(second) < min(first):
                return True
    return False


def check(shapes: list[tuple[int, int, int]]) -> Hall:
    hall, wanted = arc(blocks(shapes)), blocks(shapes)
    assert set(hall.sections) == {block.section_id for block in wanted}
    assert max(hall.size) <= hall_layout.COORDINATE_MAX
    for block in wanted:
        section = hall.sections[block.section_id]
        assert (section.rows is None) == (block.rows == 0)
        assert all(is_inside(section.outline, seat) for seat in all_seats(block, section))
        assert all(0 <= x <= hall.size[0] and 0 <= y <= hall.size[1] for x, y in section.outline)
    stage = Drawn(
        tuple((hall.stage[0] + x, hall.stage[1] + y) for x, y in ((-180, -30), (180, -30), (180, 30), (-180, 30)))
    )
    drawn = [stage, *hall.sections.values()]
    assert all(apart(one, other) for one, other in combinations(drawn, 2))
    return hall


@given(HALLS)
def test_no_two_sections_overlap_and_all_seats_are_inside(shapes: list[tuple[int, int, int]]) -> None:
    assert check(shapes) == arc(blocks(shapes))


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 1000, 0)] * 100, [(1000, 1, 0)] * 100, [(1, 1000, 0), (1000, 1, 0)] * 50, [(100, 1000, 0)],
        [(1, 200, 0), (200, 1, 0)] * 250, [(0, 0, 1_000_000)] * 250 + [(10, 40, 0)] * 250,
    ],
    ids=["wide", "deep", "wide and deep", "one", "small", "standing"],
)  # fmt: skip
def test_the_largest_halls_fit(shapes: list[tuple[int, int, int]]) -> None:
    check(shapes)


def test_an_arena_has_its_floor_in_front_and_keeps_its_order() -> None:
    hall = check([(20, 30, 0)] * 4 + [(17, 40, 0)] * 4 + [(0, 0, 4000)])
    tops = {name: min(y for _, y in section.outline) for name, section in hall.sections.items()}
    assert tops["S8"] < min(top for name, top in tops.items() if name != "S8")
    assert [name for name in hall.sections if name != "S8"] == [f"S{n}" for n in range(8)]
    assert hall.sections["S0"].outline[0][0] < hall.sections["S3"].outline[0][0]


def test_a_row_begins_at_its_first_seat_bends_and_turns() -> None:
    rows = Rows((100, 200), pitch=10, spacing=20)
    assert list(hall_layout.row_of_seats(rows, 1, 3)) == [(100, 210), (120, 210), (140, 210)]
    assert list(hall_layout.row_of_seats(rows._replace(curve=0.01), 0, 3)) == [(100, 200), (120, 204), (140, 200)]
    assert list(hall_layout.row_of_seats(rows._replace(angle=90), 1, 3)) == [(90, 200), (90, 220), (90, 240)]


@given(st.integers(1, 60), st.integers(1, 60))
def test_rows_without_parameters_fill_their_outline(count: int, seats: int) -> None:
    for outline in (SQUARE, ((150, 0), (300, 200), (0, 200)), ((0, 0), (300, 40), (280, 200), (30, 180))):
        rows = hall_layout.fit_rows(outline, count, seats)
        block = Block("S", count, seats, count * seats)
        assert all(is_inside(outline, seat) for seat in all_seats(block, Drawn(outline, rows)))


def test_the_edge_holds_the_outermost_seats() -> None:
    generator = random.Random(5)
    for _ in range(50):
        rows = Rows(
            (0, 0),
            generator.uniform(5, 20),
            generator.uniform(5, 20),
            generator.uniform(-0.01, 0.01),
            generator.uniform(0, 360),
        )
        everywhere = [point for row in range(7) for point in hall_layout.row_of_seats(rows, row, 9)]
        edge = hall_layout.edge_seats(rows, 7, 9)
        for axis in (0, 1):
            assert {min(point[axis] for point in edge), max(point[axis] for point in edge)} == {
                min(point[axis] for point in everywhere), max(point[axis] for point in everywhere)
            }  # fmt: skip
