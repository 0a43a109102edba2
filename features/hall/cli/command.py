"""`onsale map`: import the map of a hall from a plan or a drawing into the text of an event file, and draw it.

With the map come the traits of places; nothing else in the text is touched.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.hall.cli.event_text import draft, event_of, other_fields, parse, with_map, with_traits
from features.hall.hall_map import HallGeometry, Rows, SectionRows, SectionShape, hall_geometry, row_of_seats
from features.hall.rules import HallFields, blocks_of
from onsale.cli.context import out
from onsale.errors import OperatorError
from shared.contracts.event_file import EventFile
from shared.contracts.file_parts import part_of

if TYPE_CHECKING:
    from features.hall.cli.plan_sections import Choices, ImportedPlan

FILE_MAX_BYTES = 16 * 1024 * 1024
app = typer.Typer(help="Import the map of a hall, and draw it.", rich_markup_mode="rich")


@app.command("import")
def import_map(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A seating plan of pretix (.json) or a drawing (.svg).")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="EVENT.yaml", help="The event file.")],
    trait: Annotated[
        list[str] | None,
        typer.Option(metavar="CATEGORY=TRAIT", help="What the seats of a category are: wheelchair, companion, "
                     "restricted_view, easy_access, or none."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="CATEGORY=OTHER", help="The category whose price the seats of a category have, too: they "
                     "stay in its sections."),
    ] = None,
) -> None:  # fmt: skip
    """Write the map of a plan into an event file, and which places are for wheelchairs, for companions, and so on.

    An event file that exists gets the map and the traits of its places, and stays as it is otherwise; its sections must
    be those of the plan. A new event file is drafted from a seating plan, or from a drawing with seats: fill in place,
    time and prices. In a drawing the shape whose id or label is a section's id is its outline, the shape `stage` is the
    stage, and a seat has `data-row` and `data-seat`, or an id such as `STALLS-A-1`.

    Example: onsale map import plan.json -o event.yaml
    """
    if plan.suffix.lower() not in (".json", ".svg"):
        raise OperatorError(f"{plan}: a seating plan ends with .json, a drawing with .svg")
    choices, text = _choices(trait or [], price or []), _read(plan)
    if output.exists():
        _into_file(plan, text, output, choices)
        return
    if plan.suffix.lower() == ".json":
        from features.hall.cli.plan_sections import import_plan

        imported = import_plan(text, choices)
    else:
        from features.hall.cli.svg_seats import draft_of

        imported = draft_of(text, plan.stem, choices)
    event = _write(output, draft(plan.name, imported.event, imported.hall_map))
    _tell(imported, event)


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="EVENT.yaml", help="An event file, or a draft of one.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The picture; else beside the file.")] = None,
) -> None:
    """Draw the hall of an event file, as browsers get it, into an SVG file that any browser opens.

    Example: onsale map show event.yaml
    """
    event = event_of(file, _read(file))
    drawn = part_of(event, HallFields).map
    traits = {section.section_id: section.trait_runs for section in event.sections if section.kind == "seated"}
    geometry = hall_geometry(blocks_of(event.sections), drawn, traits=traits)
    picture = output or file.with_suffix(".svg")
    picture.write_text(draw(geometry, {section.section_id: section.name for section in event.sections}))
    seats = sum(section.rows.count * section.rows.seats for section in geometry.sections if section.rows)
    how = "as the file draws it" if drawn else "laid out by itself"
    out.print(f"{picture}: {len(geometry.sections)} sections, {seats} seats, {how}", soft_wrap=True)


def _into_file(plan: Path, text: str, output: Path, choices: "Choices") -> None:
    """Writes map and traits into an event file that exists. Raises `OperatorError`."""
    before = _read(output)
    if plan.suffix.lower() == ".json":
        from features.hall.cli.plan_sections import import_plan

        parse(output, before)
        imported = import_plan(text, choices)
    else:
        from features.hall.cli.svg_seats import map_of

        imported = map_of(text, event_of(output, with_map(before, None)), choices)
    mapped = with_map(before, imported.hall_map)
    sections = imported.event["sections"]
    _tell(imported, _write(output, with_traits(mapped, event_of(output, mapped), sections)))


def _choices(traits: Sequence[str], prices: Sequence[str]) -> "Choices":
    """Raises `OperatorError`."""
    from features.hall.cli.plan_sections import Choices
    from features.hall.cli.trait_words import TRAITS

    pairs = {"--trait": [each.rpartition("=") for each in traits], "--price": [each.rpartition("=") for each in prices]}
    for option, given in pairs.items():
        if wrong := next((f"{a}{equals}{b}" for a, equals, b in given if not (a and b)), None):
            raise OperatorError(f"{option} {wrong}: write the name of a category, = and what it is")
    if unknown := next((trait for _, _, trait in pairs["--trait"] if trait not in {*TRAITS, "none"}), None):
        raise OperatorError(f"--trait: there is no trait {unknown}; write one of {', '.join(TRAITS)}, or none")
    named = {
        category: next((trait for trait in TRAITS if trait == each), None) for category, _, each in pairs["--trait"]
    }
    return Choices(named, {category: other for category, _, other in pairs["--price"]})


def _tell(imported: "ImportedPlan", event: EventFile) -> None:
    """Says what was taken as what, and what could not be taken."""
    for line in imported.taken:
        out.print(line, soft_wrap=True, markup=False)
    for section_id, distance in imported.deviations.items():
        if distance >= 2:
            _note(f"{section_id}: seats lie up to {distance} from where the plan has them")
    for note in [*other_fields(event, imported.event["sections"]), *imported.left_out]:
        _note(note)


def _note(text: str) -> None:
    out.print(text, style="yellow", soft_wrap=True, markup=False)


def _read(path: Path) -> str:
    """Raises `OperatorError`."""
    try:
        if path.stat().st_size > FILE_MAX_BYTES:
            raise OperatorError(f"{path}: larger than {FILE_MAX_BYTES // 1024 // 1024} MiB")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as unreadable:
        raise OperatorError(f"{path}: {getattr(unreadable, 'strerror', None) or 'not UTF-8 text'}") from unreadable


def _write(path: Path, text: str) -> EventFile:
    """Writes an event file that is valid but for what a draft leaves open. Raises `OperatorError`."""
    event = event_of(path, text)
    path.write_text(text)
    seats = sum(block.rows * block.seats_per_row for block in blocks_of(event.sections))
    out.print(
        f"{path}: {len(event.sections)} sections, {seats} seats; see them: onsale map show {path}", soft_wrap=True
    )
    return event


# -- as a picture ------------------------------------------------------------------------------------------------------

STYLE = (
    "polygon{fill:#eef2f7;stroke:#51607a;stroke-width:2}"
    "path{stroke:#2f6fde;stroke-linecap:round;fill:none}"
    "circle{fill:none;stroke:#1b2433}"
    "rect{fill:#333}"
    "text{font:600 24px sans-serif;text-anchor:middle;fill:#1b2433;paint-order:stroke;stroke:#fff;stroke-width:5px}"
)


def draw(geometry: HallGeometry, names: Mapping[str, str]) -> str:
    """The picture; `names` are shown when the pointer rests on a section."""
    width, height = geometry.size
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>{STYLE}</style>']
    if geometry.stage:
        (x, y), (w, h) = geometry.stage.at, geometry.stage.size
        parts.append(f'<rect x="{x - w // 2}" y="{y - h // 2}" width="{w}" height="{h}" rx="8"/>')
    parts += [_section(section, names.get(section.section_id, "")) for section in geometry.sections]
    return "\n".join([*parts, "</svg>\n"])


def _section(section: SectionShape, name: str) -> str:
    corners = " ".join(f"{x},{y}" for x, y in section.outline)
    x = sum(x for x, _ in section.outline) // len(section.outline)
    y = sum(y for _, y in section.outline) // len(section.outline)
    title = f"<title>{escape(name)}</title>"
    label = f'<text x="{x}" y="{y}">{escape(section.section_id)}</text>'
    seats = _seats(section.rows) if section.rows else ""
    return f'<g id="{escape(section.section_id)}">{title}<polygon points="{corners}"/>{seats}{label}</g>'


def _seats(rows: SectionRows) -> str:
    """A square each, and a ring around those with a trait, which is its title."""
    lines = Rows(rows.at, rows.pitch, rows.spacing, rows.curve, rows.angle)
    seats = [point for row in range(rows.count) for point in row_of_seats(lines, row, rows.seats)]
    size = round(min(abs(rows.pitch) or rows.spacing, rows.spacing) * 0.7, 2)
    traits: dict[int, list[str]] = {}
    for trait, runs in rows.traits.items():
        for seat in (seat for first, last in runs for seat in range(first, last + 1)):
            traits.setdefault(seat, []).append(trait)
    rings = (
        f'<circle cx="{seats[n][0]}" cy="{seats[n][1]}" r="{size * 0.6:.2f}" stroke-width="{size / 5:.2f}">'
        f"<title>{', '.join(found)}</title></circle>"
        for n, found in traits.items()
    )
    return f'<path stroke-width="{size}" d="{"".join(f"M{x} {y}h0" for x, y in seats)}"/>{"".join(rings)}'
