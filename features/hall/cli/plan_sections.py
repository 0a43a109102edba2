"""Turns the seats of a plan into sections of an event file, with their prices, their traits and their map.

A section has rows of equal length, and each of its rows has one price. So a row is cut where the category of its seats
changes, neighbouring rows that are cut alike are one section, and rows of other categories in it are price levels. Each
seat keeps the price of its category, its label and its place. What rows as parameters cannot express, such as an aisle
in a row, is reported as a distance.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from features.hall.cli.pretix_plan import (
    PLACES_NAMED_MAX,
    PlacedSeat,
    Plan,
    PlanPart,
    left_out,
    place,
    read_plan,
    require_distinct,
    seats_of,
)
from features.hall.cli.trait_words import NAMES, TRAITS, is_unclear, marks, traits_in
from features.hall.hall_map import DISTANCE_MIN, Point, Rows, row_of_seats
from onsale.errors import OperatorError
from shared.contracts.event_parts.price_types import Trait
from shared.contracts.event_parts.seat_labels import Label, SeatLabels, rule_of
from shared.contracts.event_parts.traits import joined, named

DEFAULT_DISTANCE = 20.0
ID_MAX = 28
SECTIONS_MAX, LEVELS_MAX = 500, 50
_label = TypeAdapter(Label)


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person says about categories: which trait their seats have (or none), and whose price they have."""

    traits: Mapping[str, Trait | None] = field(default_factory=dict)
    prices: Mapping[str, str] = field(default_factory=dict)

    def require_known(self, categories: Iterable[str]) -> None:
        """Raises `OperatorError` for a category that is none of these."""
        known = set(categories)
        for category in [*self.traits, *itertools.chain(*self.prices.items())]:
            if category not in known:
                has = ", ".join(f'"{each}"' for each in sorted(known)[:20])
                raise OperatorError(f'there is no category "{category}"; there is {has or "none"}')


class _Block(NamedTuple):
    """Rows of one zone with the same number of seats: the category of each row, its seats, and the places of these."""

    zone: str
    categories: list[str]
    seats: list[list[PlacedSeat]]
    rows: list[list[tuple[float, float]]]

    @property
    def category(self) -> str:
        """That of most rows: its price is the section's."""
        return Counter(self.categories).most_common(1)[0][0]

    @property
    def name(self) -> str:
        """Of its zone, and of its category if it has one only."""
        return " · ".join(filter(None, (self.zone, self.category if len(set(self.categories)) == 1 else "")))

    @property
    def levels(self) -> list[tuple[str, int, int]]:
        """The other categories, each with the first and the last of its rows."""
        runs = itertools.groupby(range(len(self.rows)), key=lambda row: self.categories[row])
        found = [(category, list(rows)) for category, rows in runs if category != self.category]
        return [(category, rows[0], rows[-1]) for category, rows in found]


class ImportedPlan(NamedTuple):
    """An event file's beginning and its map; how far the seats of each section lie from where the plan has them; what
    was taken as what, and what could not be taken, in sentences.
    """

    event: dict[str, Any]
    hall_map: dict[str, Any]
    deviations: dict[str, float]
    taken: list[str]
    left_out: list[str]


def import_plan(text: str, choices: Choices | None = None) -> ImportedPlan:
    """Raises `OperatorError`."""
    return sections_of(read_plan(text), choices or Choices())


def sections_of(plan: Plan, choices: Choices, *, is_moved: bool = True) -> ImportedPlan:
    """Its places are moved from beyond the edge unless `is_moved` is false. Raises `OperatorError`."""
    require_distinct(plan)
    choices.require_known(one.seat.category for one in seats_of(plan))
    blocks = [block for zone in _zones(plan) for block in _blocks(plan, zone, choices)]
    if not blocks:
        raise OperatorError("the plan has no seats")
    if len(blocks) > SECTIONS_MAX:
        raise OperatorError(
            f"the plan has {len(blocks)} runs of rows of equal length and category, and an event {SECTIONS_MAX} "
            "sections at most"
        )
    dx, dy = _offset(blocks) if is_moved else (0.0, 0.0)
    moved = [block._replace(rows=[[(x + dx, y + dy) for x, y in row] for row in block.rows]) for block in blocks]
    traits = _SeatTraits(plan, choices)
    sections, shapes, deviations = list[dict[str, Any]](), dict[str, Any](), dict[str, float]()
    for section_id, block in zip(_ids(moved), moved, strict=True):
        rows = _fit(block.rows)
        count, seats = len(block.rows), len(block.rows[0])
        sections.append({
            "section_id": section_id, "name": block.name or section_id, "kind": "seated", **_labels(plan, block),
            "price_minor": None, **_levels(block), **traits.of(block),
        })  # fmt: skip
        shapes[section_id] = {"outline": _outline(rows, count, seats), "rows": {**rows._asdict(), "at": [*rows.at]}}
        deviations[section_id] = _deviation(rows, block.rows)
    stage = _stage(plan, dx, dy)
    hall_map = {"size": _size(plan, shapes, stage), **({"stage": stage} if stage else {}), "sections": shapes}
    event_id = _slug(plan.name, "-").lower() or "event"
    event = {
        "event_id": event_id, "name": plan.name, "venue": None, "currency": None, "starts_at": None,
        "sections": sections,
    }  # fmt: skip
    ids = [section["section_id"] for section in sections]
    taken = [*traits.taken, *_prices(dict(zip(ids, blocks, strict=True)))]
    return ImportedPlan(event, hall_map, deviations, taken, [*traits.unclear, *_apart(plan, choices), *left_out(plan)])


def _zones(plan: Plan) -> Iterator[list[list[PlacedSeat]]]:
    """The rows of each zone. Rows of one number, as beside an aisle, follow each other: all first ones, then the second
    ones, so that each side becomes a section.
    """
    for _, of_zone in itertools.groupby(seats_of(plan), key=lambda one: one.zone):
        rows = [list(seats) for _, seats in itertools.groupby(of_zone, key=lambda one: id(one.row))]
        earlier, nth = Counter[str](), list[int]()
        for row in rows:
            nth.append(earlier[row[0].row_label])
            earlier[row[0].row_label] += 1
        yield [row for _, row in sorted(zip(nth, rows, strict=True), key=lambda numbered: numbered[0])]


def _blocks(plan: Plan, rows: Sequence[list[PlacedSeat]], choices: Choices) -> Iterator[_Block]:
    """Cuts rows where the price changes; rows that are cut alike stay together until one has a number again."""

    def category(one: PlacedSeat) -> str:
        return choices.prices.get(one.seat.category, one.seat.category)

    def columns() -> Iterator[_Block]:
        for column in zip(*group, strict=True):
            places = [[_place(plan, one) for one in row] for row in column]
            categories = [category(row[0]) for row in column]
            yield _Block(plan.zones[column[0][0].zone].name, categories, list(column), places)

    group: list[list[list[PlacedSeat]]] = []
    for row in rows:
        runs = [list(run) for _, run in itertools.groupby(row, key=category)]
        if group and not (_are_cut_alike(group, runs) and _has_few_levels([*group, runs], category)):
            yield from columns()
            group = []
        group.append(runs)
    yield from columns()


def _are_cut_alike(group: Sequence[Sequence[Sequence[PlacedSeat]]], runs: Sequence[Sequence[PlacedSeat]]) -> bool:
    cut_alike = [len(run) for run in runs] == [len(run) for run in group[-1]]
    return cut_alike and runs[0][0].row_label not in {row[0][0].row_label for row in group}


def _has_few_levels(group: Sequence[Sequence[Sequence[PlacedSeat]]], category: Callable[[PlacedSeat], str]) -> bool:
    """Whether no column has more runs of rows of one category than a section has price levels."""
    return all(
        sum(1 for _ in itertools.groupby(column, key=lambda run: category(run[0]))) <= LEVELS_MAX
        for column in zip(*group, strict=True)
    )


def _place(plan: Plan, one: PlacedSeat) -> tuple[float, float]:
    """Positions of seats are relative to those of their row, and these to those of their zone."""
    parts = plan.zones[one.zone].position, one.row.position, one.seat.position
    return sum(part.x for part in parts), sum(part.y for part in parts)


def _labels(plan: Plan, block: _Block) -> dict[str, Any]:
    """The fields of a section that say what stands on its rows and seats, as briefly as they can."""
    for one in (one for row in block.seats for one in row):
        _require_label(one.row_label, f"line {one.row.line}: {place(plan, one.zone, one.row_label)}")
        _require_label(one.label, one.words(plan))
    names = [row[0].row_label for row in block.seats]
    seats = [[one.label for one in row] for row in block.seats]
    given = [rule_of(labels) or labels for labels in seats]
    usual = Counter(map(str, given)).most_common(1)[0][0]
    common = next(one for one in given if str(one) == usual)
    rows = [name if one == common else {"row": name, "seats": one} for name, one in zip(names, given, strict=True)]
    counted = rows == [str(n) for n in range(1, len(rows) + 1)]
    return {
        "rows": len(rows) if counted else rows, "seats_per_row": len(seats[0]),
        **({} if common == "consecutive" else {"seats": common}),
    }  # fmt: skip


def _require_label(label: str, where: str) -> None:
    try:
        _label.validate_python(label)
    except ValidationError as refused:
        says = refused.errors()[0]["ctx"]["error"]
        raise OperatorError(f"{where}: the number {label!r} cannot stand on a ticket: {says}") from None


def _levels(block: _Block) -> dict[str, Any]:
    """The price levels of a section whose rows have several categories, their prices left open."""
    names = [row[0].row_label for row in block.seats]
    levels = [
        {"name": category or "Others", "rows": [names[first], names[last]], "price_minor": None}
        for category, first, last in block.levels
    ]
    return {"price_levels": levels} if levels else {}


class _SeatTraits:
    """The traits of each seat, by what its category, its zone and its marks say."""

    def __init__(self, plan: Plan, choices: Choices) -> None:
        self._plan, self._choices = plan, choices
        categories = {category.name: category for category in plan.categories}
        self._by_seat: dict[int, set[Trait]] = {}
        sources: dict[Trait, Counter[str]] = {trait: Counter() for trait in TRAITS}
        unclear: dict[str, str] = {}
        for one in seats_of(plan):
            parts = (one.seat, one.row, plan.zones[one.zone], categories.get(one.seat.category))
            for trait, source in self._traits_of(one, [part for part in parts if part], unclear).items():
                sources[trait][source] += 1
                self._by_seat.setdefault(id(one.seat), set()).add(trait)
        self.taken = [
            f"places {NAMES[trait]} ({trait}): {sum(found.values())}, by {', '.join(list(found)[:PLACES_NAMED_MAX])}"
            f"{', …' if found.keys() - list(found)[:PLACES_NAMED_MAX] else ''}"
            for trait, found in sources.items()
            if found
        ]
        self.unclear = [
            f"{source} is not taken as a trait: for wheelchairs, or for companions? Say so: "
            f'--trait "{category}=wheelchair"'
            for source, category in unclear.items()
        ]

    def _traits_of(self, one: PlacedSeat, parts: Iterable[PlanPart], unclear: dict[str, str]) -> dict[Trait, str]:
        """Each trait of the seat, with what says so."""
        category, zone = one.seat.category, self._plan.zones[one.zone].name
        texts = {f'the zone "{zone}"': zone, f'the category "{category}"': category}
        if category in self._choices.traits:
            trait = self._choices.traits[category]
            found = {trait: f'the category "{category}", as you say'} if trait else {}
            texts = {}
        else:
            found = {trait: source for source, text in texts.items() for trait in traits_in(text)}
        unclear |= {source: category for source, text in texts.items() if is_unclear(text)}
        for part in parts:
            found |= {trait: f"the mark {name}" for name, traits in marks(part.others) for trait in traits}
        return found

    def of(self, block: _Block) -> dict[str, Any]:
        """The field of a section."""
        names = tuple(row[0].row_label for row in block.seats)
        labels = SeatLabels(
            names, tuple(tuple(one.label for one in row) for row in block.seats), tuple(range(len(names)))
        )
        width = len(block.seats[0]) + 1
        found = {
            trait: joined(
                (row_n * width + n,) * 2
                for row_n, row in enumerate(block.seats)
                for n, one in enumerate(row)
                if trait in self._by_seat.get(id(one.seat), ())
            )
            for trait in TRAITS
        }
        traits = {trait: named(runs, labels, width) for trait, runs in found.items() if runs}
        return {"traits": traits} if traits else {}


def _prices(blocks: Mapping[str, _Block]) -> Iterator[str]:
    """Where each category has its price; and for places with a trait, how to sell them at the price of those around."""
    found: dict[str, list[str]] = {}
    for section_id, block in blocks.items():
        found.setdefault(block.category, []).append(section_id)
        for category in dict.fromkeys(category for category, *_ in block.levels):
            found.setdefault(category, []).append(f"{section_id} (price level)")
    for category, places in found.items():
        more = f" and {len(places) - PLACES_NAMED_MAX} more" if places[PLACES_NAMED_MAX:] else ""
        what = f'the category "{category}"' if category else "seats without a category"
        yield f"the price of {what}: {', '.join(places[:PLACES_NAMED_MAX])}{more}"


def _apart(plan: Plan, choices: Choices) -> Iterator[str]:
    """How to keep places with a trait in the sections around them."""
    neighbours: dict[str, Counter[str]] = {}

    def has_trait(category: str) -> bool:
        return bool(choices.traits[category] if category in choices.traits else traits_in(category))

    for row in (row for zone in plan.zones for row in zone.rows):
        categories = list(dict.fromkeys(seat.category for seat in row.seats))
        for category in categories:
            if has_trait(category) and category not in choices.prices:
                neighbours.setdefault(category, Counter()).update(each for each in categories if not has_trait(each))
    for category, others in neighbours.items():
        if others:
            yield (
                f'the category "{category}" cuts its rows, as it has a price of its own; if it costs what the seats '
                f'beside it cost: --price "{category}={others.most_common(1)[0][0]}"'
            )


def _offset(blocks: Sequence[_Block]) -> tuple[float, float]:
    """Moves a plan that begins beyond its edge, with space for outlines, into positive coordinates."""
    places = [place for block in blocks for row in block.rows for place in row]
    left, top = min(x for x, _ in places), min(y for _, y in places)
    return max(0.0, 2 * DEFAULT_DISTANCE - left), max(0.0, 2 * DEFAULT_DISTANCE - top)


def _ids(blocks: Sequence[_Block]) -> Iterator[str]:
    wanted = [id_of(block.zone) or f"S{n}" for n, block in enumerate(blocks, 1)]
    numbers = Counter[str]()
    for name in wanted:
        numbers[name] += 1
        yield f"{name}_{numbers[name]}" if wanted.count(name) > 1 else name


def id_of(zone: str) -> str:
    """The id of the section of a zone that becomes one section."""
    return _slug(zone, "_").upper()[:ID_MAX]


def _slug(text: str, joiner: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", joiner, text).strip(joiner)[:32].strip(joiner)


def _fit(rows: Sequence[Sequence[tuple[float, float]]]) -> Rows:
    """The rows that come closest, by the mean of the rows' directions, distances and bends."""
    first, last, seats = rows[0][0], rows[-1][0], len(rows[0])
    across = (sum(row[-1][0] - row[0][0] for row in rows), sum(row[-1][1] - row[0][1] for row in rows))
    down = (last[0] - first[0], last[1] - first[1])
    turn = math.atan2(across[1], across[0]) if seats > 1 else (math.atan2(-down[0], down[1]) if any(down) else 0.0)
    cos, sin = math.cos(turn), math.sin(turn)
    spacing = math.hypot(*across) / len(rows) / (seats - 1) if seats > 1 else DEFAULT_DISTANCE
    pitch = (down[1] * cos - down[0] * sin) / (len(rows) - 1) if len(rows) > 1 else DEFAULT_DISTANCE
    middle = seats // 2
    bend = spacing**2 * middle * (seats - 1 - middle)
    bends = [(row[middle][1] - row[0][1]) * cos - (row[middle][0] - row[0][0]) * sin for row in rows]
    curve = sum(bends) / len(bends) / bend if bend else 0.0
    return Rows(
        (round(first[0]), round(first[1])), round(pitch, 2), max(round(spacing, 2), DISTANCE_MIN), round(curve, 6),
        round(math.degrees(turn), 2),
    )  # fmt: skip


def _outline(rows: Rows, count: int, seats: int) -> list[list[int]]:
    """A turned rectangle around the seats, half a seat wider."""
    u_max, margin = rows.spacing * (seats - 1), max(rows.spacing, DEFAULT_DISTANCE / 2) * 0.75
    bend = rows.curve * u_max**2 / 4
    v = sorted((0.0, bend, rows.pitch * (count - 1), rows.pitch * (count - 1) + bend))
    cos, sin = math.cos(math.radians(rows.angle)), math.sin(math.radians(rows.angle))
    corners = ((-margin, v[0] - margin), (u_max + margin, v[0] - margin), (u_max + margin, v[-1] + margin),
               (-margin, v[-1] + margin))  # fmt: skip
    return [
        [max(0, round(rows.at[0] + u * cos - w * sin)), max(0, round(rows.at[1] + u * sin + w * cos))]
        for u, w in corners
    ]


def _deviation(rows: Rows, places: Sequence[Sequence[tuple[float, float]]]) -> float:
    """The largest distance of a seat from its place in the plan."""
    pairs = (
        (seat, place)
        for n, row in enumerate(places)
        for seat, place in zip(row_of_seats(rows, n, len(row)), row, strict=True)
    )
    return round(max(math.dist(seat, place) for seat, place in pairs), 1)


def _stage(plan: Plan, dx: float, dy: float) -> dict[str, Any] | None:
    if plan.stage is None:
        return None
    zone, area = plan.stage
    width, height = area.size
    left, top = zone.position.x + area.position.x + dx, zone.position.y + area.position.y + dy
    return {"at": [round(left + width / 2), round(top + height / 2)], "size": [round(width), round(height)]}


def _size(plan: Plan, shapes: dict[str, Any], stage: dict[str, Any] | None) -> list[int]:
    points: list[Point] = [point for shape in shapes.values() for point in shape["outline"]]
    if stage:
        points.append((stage["at"][0] + stage["size"][0] // 2, stage["at"][1] + stage["size"][1] // 2))
    wanted = (plan.size.width, plan.size.height) if plan.size else (1, 1)
    return [max(math.ceil(wanted[axis]), *(point[axis] for point in points)) for axis in (0, 1)]
