"""Plots as SVG: a few panels of lines over one axis, and lines over time for a page that may be light or dark.

Written by hand, so that they need nothing and diff well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

PANEL, HIGH, LEFT, BOTTOM, TOP = 300, 230, 46, 40, 34
MARKS_MAX = 8
WIDE, GRID, INK = 680, "#d0d7de", "currentColor"
TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
TIME_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
COLOURS = ("#c8102e", "#f08a24", "#1f6feb", "#2da44e", "#8250df", "#57606a")


@dataclass(frozen=True)
class Line:
    """A name and its points."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Axis:
    """Where the axis of a panel is labelled and how, how wide the panel is, and the colour of its grid."""

    marks: Callable[[Sequence[float]], Sequence[float]]
    label: Callable[[float, float], str]
    wide: int
    grid: str


def line_plot(panels: Sequence[tuple[str, Sequence[Line]]]) -> str:
    """The panels side by side, each with its own scale from zero, and one legend below: a name has one colour."""
    wide = PANEL * len(panels)
    names = list(dict.fromkeys(line.name for _, lines in panels for line in lines))
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {HIGH + 30}" font-family="sans-serif" '
             'font-size="11">', f'<rect width="{wide}" height="{HIGH + 30}" fill="#ffffff"/>']  # fmt: skip
    for n, (title, lines) in enumerate(panels):
        parts += [f'<g transform="translate({n * PANEL} 0)">', *_panel(title, lines, colours, NUMBERS), "</g>"]
    step = wide / max(1, len(names))
    for n, name in enumerate(names):
        x = n * step + 12
        parts.append(f'<rect x="{x:.0f}" y="{HIGH + 8}" width="10" height="10" fill="{colours[name]}"/>')
        parts.append(f'<text x="{x + 15:.0f}" y="{HIGH + 17}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def time_plot(title: str, lines: Sequence[Line], *, description: str) -> str:
    """Lines over the seconds since a beginning, as wide as the page and in its colour of text; a legend names them."""
    axis = _Axis(_time_marks, _duration, WIDE, INK)
    colours = {line.name: COLOURS[(2 + n) % len(COLOURS)] for n, line in enumerate(lines)}
    parts = [f'<svg viewBox="0 0 {WIDE} {HIGH + 22}" role="img" aria-label="{escape(description)}" '
             'font-family="sans-serif" font-size="12" fill="currentColor">',
             *_panel(title, lines, colours, axis)]  # fmt: skip
    x = LEFT
    for name, colour in colours.items():
        parts.append(f'<rect x="{x}" y="{HIGH + 2}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="{HIGH + 12}">{escape(name)}</text>')
        x += 34 + 7 * len(name)
    return "\n".join([*parts, "</svg>"])


def _panel(title: str, lines: Sequence[Line], colours: Mapping[str, str], axis: _Axis) -> list[str]:
    across = max((x for line in lines for x, _ in line.points), default=0) or 1.0
    most = max((y for line in lines for _, y in line.points), default=0) or 1.0
    bottom, right = HIGH - BOTTOM, axis.wide - 16

    def at(x: float, y: float) -> str:
        return f"{LEFT + x / across * (right - LEFT):.1f},{bottom - y / most * (bottom - TOP):.1f}"

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - TOP)
        opacity = ' stroke-opacity="0.2"' if axis.grid == INK else ""
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="{axis.grid}"{opacity}/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{_height(most * share, most)}</text>')
    for x in axis.marks(sorted({x for line in lines for x, _ in line.points})):
        place, label = at(x, 0).partition(",")[0], axis.label(x, across)
        parts.append(f'<text x="{place}" y="{bottom + 15}" text-anchor="middle">{label}</text>')
    for line in lines:
        colour, points = colours[line.name], " ".join(at(x, y) for x, y in line.points)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def _marks(xs: Sequence[float]) -> Sequence[float]:
    """Where the axis is labelled: at each point, or in round steps if there are many."""
    if len(xs) <= MARKS_MAX:
        return xs
    rough = xs[-1] / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [n * step for n in range(int(xs[-1] / step) + 1)]


def _height(y: float, most: float) -> str:
    return f"{y:,.0f}" if most >= 2 else f"{y:.2g}"


def _number(x: float, across: float) -> str:
    return f"{x / 1000:g}k" if across >= 1000 else f"{x:g}"


NUMBERS = _Axis(_marks, _number, PANEL, GRID)


def _time_marks(xs: Sequence[float]) -> Sequence[float]:
    """At most eight round times."""
    last = xs[-1] if xs else 0.0
    step = next(
        (step for step in TIME_STEPS_S if last / step <= MARKS_MAX), 86_400 * math.ceil(last / 86_400 / MARKS_MAX)
    )
    return [n * step for n in range(int(last / step) + 1)]


def _duration(x: float, across: float) -> str:
    """In the largest unit that the axis is a multiple of."""
    seconds, unit = next((unit for unit in TIME_UNITS if across >= 2 * unit[0]), TIME_UNITS[-1])
    return f"{x / seconds:g} {unit}"
