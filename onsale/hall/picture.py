"""Draws a hall as an SVG picture: outlines with names, a dot for each seat, the stage. It has no scripts."""

from collections.abc import Mapping
from html import escape

from shared.contracts.event_parts.hall_map import HallGeometry, SectionRows, SectionShape
from shared.rules.hall_layout import Rows, row_of_seats

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
