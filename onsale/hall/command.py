"""`onsale map`: import the map of a hall from a plan or a drawing, and draw it."""

from pathlib import Path
from typing import Annotated

import typer

from onsale.cli.context import out
from onsale.errors import OperatorError
from onsale.hall import event_text
from shared.contracts.event_file import EventFile

FILE_MAX_BYTES = 16 * 1024 * 1024
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
    from onsale.hall.picture import draw
    from shared.contracts.event_parts.hall_map import hall_geometry

    event = event_text.event_of(file, _read(file))
    geometry = hall_geometry(event.blocks, event.map)
    picture = output or file.with_suffix(".svg")
    picture.write_text(draw(geometry, {section.section_id: section.name for section in event.sections}))
    seats = sum(section.rows.count * section.rows.seats for section in geometry.sections if section.rows)
    how = "as the file draws it" if event.map else "laid out by itself"
    out.print(f"{picture}: {len(geometry.sections)} sections, {seats} seats, {how}", soft_wrap=True)


def _import_plan(plan: Path, output: Path) -> None:
    from onsale.hall.pretix_plan import import_plan

    imported = import_plan(_read(plan))
    if output.exists():
        text = event_text.with_map(_read(output), imported.hall_map)
    else:
        text = event_text.draft(plan.name, imported.event, imported.hall_map)
    event = _write(output, text)
    for section_id, distance in imported.deviations.items():
        if distance >= 2:
            _note(f"{section_id}: seats lie up to {distance} from where the plan has them")
    for note in [*event_text.other_labels(event, imported.event["sections"]), *imported.left_out]:
        _note(note)


def _note(text: str) -> None:
    out.print(text, style="yellow", soft_wrap=True, markup=False)


def _import_drawing(drawing: Path, output: Path) -> None:
    from onsale.hall.svg_outlines import import_outlines

    if not output.exists():
        raise OperatorError(f"{output} does not exist: a drawing has outlines only, so it needs an event file")
    text = _read(output)
    sections = event_text.parse(output, text).value["sections"]
    ids = [str(section.get("section_id")) for section in sections if isinstance(section, dict)]
    imported = import_outlines(_read(drawing), ids)
    _write(output, event_text.with_map(text, imported.hall_map))
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
    event = event_text.event_of(path, text)
    path.write_text(text)
    seats = sum(block.rows * block.seats_per_row for block in event.blocks)
    out.print(
        f"{path}: {len(event.sections)} sections, {seats} seats; see them: onsale map show {path}", soft_wrap=True
    )
    return event
