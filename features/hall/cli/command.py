"""`onsale map`: import the map of a hall from a plan or a drawing into the text of an event file, and draw it.

Nothing else in the text is touched. A draft of a new file leaves open what a plan cannot know: place, time and prices.
It cannot be applied before a person fills them in.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer

from features.hall.hall_map import HallGeometry, Rows, SectionRows, SectionShape, hall_geometry, row_of_seats
from features.hall.rules import HallFields, blocks_of
from onsale import event_files
from onsale.cli.context import out
from onsale.errors import OperatorError
from onsale.strict_yaml import YamlText, write_yaml
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.file_parts import part_of

FILE_MAX_BYTES = 16 * 1024 * 1024
_MAP = re.compile(r"^map:.*?(?=^[^\s]|\Z)", re.M | re.S)
_OPEN = {"venue": "-", "currency": "EUR", "starts_at": "2030-01-01T00:00:00Z"}
HEADER = "# Drafted from {source}. Fill in what is empty: venue, currency, starts_at, and the price of each section.\n"
app = typer.Typer(help="Import the map of a hall, and draw it.", rich_markup_mode="rich")


@app.command("import")
def import_map(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A seating plan of pretix (.json) or a drawing (.svg).")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="EVENT.yaml", help="The event file.")],
) -> None:
    """Write the map of a plan into an event file.

    An event file that exists gets the map and stays as it is otherwise; its sections must be those of the plan. From a
    seating plan a new event file is drafted: fill in place, time and prices. A drawing needs an event file with the
    sections: the shape whose id is a section's id is its outline, and the shape `stage` is the stage.

    Example: onsale map import plan.json -o event.yaml
    """
    if plan.suffix.lower() == ".json":
        _import_plan(plan, output)
    elif plan.suffix.lower() == ".svg":
        _import_drawing(plan, output)
    else:
        raise OperatorError(f"{plan}: a seating plan ends with .json, a drawing with .svg")


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
    geometry = hall_geometry(blocks_of(event.sections), drawn)
    picture = output or file.with_suffix(".svg")
    picture.write_text(draw(geometry, {section.section_id: section.name for section in event.sections}))
    seats = sum(section.rows.count * section.rows.seats for section in geometry.sections if section.rows)
    how = "as the file draws it" if drawn else "laid out by itself"
    out.print(f"{picture}: {len(geometry.sections)} sections, {seats} seats, {how}", soft_wrap=True)


def _import_plan(plan: Path, output: Path) -> None:
    from features.hall.cli.pretix_plan import import_plan

    imported = import_plan(_read(plan))
    if output.exists():
        text = with_map(_read(output), imported.hall_map)
    else:
        text = draft(plan.name, imported.event, imported.hall_map)
    event = _write(output, text)
    for section_id, distance in imported.deviations.items():
        if distance >= 2:
            _note(f"{section_id}: seats lie up to {distance} from where the plan has them")
    for note in [*other_labels(event, imported.event["sections"]), *imported.left_out]:
        _note(note)


def _note(text: str) -> None:
    out.print(text, style="yellow", soft_wrap=True, markup=False)


def _import_drawing(drawing: Path, output: Path) -> None:
    from features.hall.cli.svg_outlines import import_outlines

    if not output.exists():
        raise OperatorError(f"{output} does not exist: a drawing has outlines only, so it needs an event file")
    text = _read(output)
    sections = parse(output, text).value["sections"]
    ids = [str(section.get("section_id")) for section in sections if isinstance(section, dict)]
    imported = import_outlines(_read(drawing), ids)
    _write(output, with_map(text, imported.hall_map))
    for note in imported.left_out:
        _note(note)


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


# -- event files as text -----------------------------------------------------------------------------------------------


def parse(path: Path, text: str) -> YamlText:
    """What an event file says, or a draft of one. Raises `OperatorError`."""
    contents = event_files.parse(path, text)
    if not isinstance(contents.value, dict) or not isinstance(contents.value.get("sections"), list):
        raise OperatorError(f"{path}: not an event file: it has no sections")
    return contents


def event_of(path: Path, text: str) -> EventFile:
    """The event, with what a draft leaves open filled in somehow. Raises `OperatorError`."""
    contents = parse(path, text)
    filled = {**_OPEN, **{name: value for name, value in contents.value.items() if value is not None}}
    filled["sections"] = [
        {**section, "price_minor": section.get("price_minor") or 0} if isinstance(section, dict) else section
        for section in filled["sections"]
    ]
    return event_files.validated(path, contents, filled)


def other_labels(event: EventFile, planned: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The sections whose rows or seats have other labels in the file than in a plan, and what to write there."""
    own = {section.section_id: section for section in event.sections if isinstance(section, SeatedSection)}
    for fields in planned:
        wanted = SeatedSection.model_validate({**fields, "price_minor": 0})
        if (section := own.get(wanted.section_id)) and section.labels != wanted.labels:
            named = {name: fields[name] for name in ("rows", "seats_per_row", "seats") if name in fields}
            text = write_yaml(named, flow_style=True, width=10_000).strip()
            yield f"{wanted.section_id}: the plan's rows and seats are not kept; to have them, write there {text[1:-1]}"


def with_map(text: str, hall_map: Mapping[str, Any]) -> str:
    """The text with this map; everything else stays, comments too."""
    return f"{_MAP.sub('', text).rstrip()}\n{_dumped({'map': hall_map})}"


def draft(source: str, event: Mapping[str, Any], hall_map: Mapping[str, Any]) -> str:
    """A new event file."""
    return HEADER.format(source=source) + _dumped(event) + _dumped({"map": hall_map})


def _dumped(document: Mapping[str, Any]) -> str:
    return write_yaml(dict(document), flow_style=None, width=200)


# -- as a picture ------------------------------------------------------------------------------------------------------

STYLE = (
    "polygon{fill:#eef2f7;stroke:#51607a;stroke-width:2}"
    "path{stroke:#2f6fde;stroke-linecap:round;fill:none}"
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
    lines = Rows(rows.at, rows.pitch, rows.spacing, rows.curve, rows.angle)
    seats = (point for row in range(rows.count) for point in row_of_seats(lines, row, rows.seats))
    size = round(min(abs(rows.pitch) or rows.spacing, rows.spacing) * 0.7, 2)
    return f'<path stroke-width="{size}" d="{"".join(f"M{x} {y}h0" for x, y in seats)}"/>'
