"""The report of a sale as one HTML page: everything is inside, nothing is loaded and no script runs.

Every text that anybody typed is escaped. `docs/use/reports.md` says what each figure means.

Plots as SVG: a few panels of lines over one axis, and lines over time for a page that may be light or dark.

Written by hand, so that they need nothing and diff well.
"""

import importlib.resources
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import accumulate
from typing import Any

from features.reports.sale import OperatorChange, Sale
from features.reports.schemas import EventMoney
from shared.contracts.catalogue import EventDetails
from shared.rules.currencies import format_money
from shared.runtime.clock import zone_of

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


STYLE = importlib.resources.files(__package__).joinpath("page.css").read_text()
HIDDEN_CHANGES = frozenset({"version", "epoch"})
VALUE_CHARACTERS_MAX, CHANGED_MAX = 60, 12


def write_page(sale: Sale) -> str:
    """The whole page."""
    title = f"{sale.event.name}: report of the sale"
    parts = [
        _head(sale), _tiles(sale), _funnel(sale), _line(sale), _sell_through(sale), _holds(sale), _payments(sale),
        _changes(sale), _invariants(sale), _foot(sale),
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def percent(share: float | None) -> str:
    """Empty for none."""
    return "" if share is None else f"{share:.1%}"


def seconds(value: float | None) -> str:
    """A duration in at most two units; empty for none."""
    if value is None:
        return ""
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    whole = round(value)
    for size, unit, smaller, small_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def _when(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else ""


def _begins(event: EventDetails) -> str:
    """When the show begins, by the clock of its venue."""
    return f"{event.starts_at.astimezone(zone_of(event.timezone)):%A, %d %B %Y, %H:%M} ({event.timezone})"


def _head(sale: Sale) -> str:
    start, end = sale.flow.span
    return (
        f"<header><h1>{escape(sale.event.name)}</h1>"
        f"<p>{escape(sale.event.venue)} · {escape(_begins(sale.event))}</p>"
        f'<p class="note">Sale {escape(sale.event_id)}, {_when(start)} to {_when(end)} UTC. '
        f"All times are UTC; read from the databases at {_when(sale.made_at)}.</p></header>"
    )


def _tiles(sale: Sale) -> str:
    flow, wait = sale.flow, sale.flow.line.wait
    taken = ", ".join(format_money(_kept_minor(one), one.currency) for one in sale.orders.money)
    tiles = {
        "fans joined": f"{flow.line.joined:,}",
        "fans bought": f"{flow.orders.fans_confirmed:,}",
        f"of {flow.on_sale:,} tickets sold": f"{flow.sold:,}",
        "sold": percent(flow.sold / flow.on_sale) if flow.on_sale else "–",
        "taken, less refunds and disputes": taken or "–",
        "median wait": seconds(wait.p50_s) or "–",
    }
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for k, v in tiles.items())
        + "</div>"
    )


def _funnel(sale: Sale) -> str:
    rows = []
    for step in sale.flow.funnel:
        width = min(1.0, step.of_joined or 0.0)
        bar = Raw(f'<td class="bar"><i style="width:{width:.2%}"></i></td>')
        rows.append((step.name, bar, step.fans, step.lost, percent(step.of_previous), percent(step.of_joined)))
    note = "Each fan counts once in a step, however many calls, holds or orders they had."
    if sale.flow.line.epoch > 1:
        note += " The line was reset: joined, called and claimed count since then, the other steps from the beginning."
    return _section(
        "From joining to buying",
        _table(("step", "", "fans", "lost", "of the step before", "of all"), rows),
        _note(note),
    )


def _line(sale: Sale) -> str:
    line, wait = sale.flow.line, sale.flow.line.wait
    joined, called = ([(step.step, getattr(step, name)) for step in sale.line.steps] for name in ("joined", "called"))
    p50, p95 = (
        [(step.step * sale.step_s, value) for step in sale.line.steps if (value := getattr(step, name)) is not None]
        for name in ("wait_p50_s", "wait_p95_s")
    )
    numbers = [
        ("fans called", f"{wait.fans:,}"), ("wait, median", seconds(wait.p50_s)), ("wait, 95 %", seconds(wait.p95_s)),
        ("wait, longest", seconds(wait.longest_s)), ("calls missed", f"{line.missed_calls:,}"),
        ("still waiting, never called", f"{line.waiting:,}"), ("left before the end", f"{line.left_early:,}"),
        ("expired", f"{line.expired:,}"), ("completed", f"{line.completed:,}"),
    ]  # fmt: skip
    return _section(
        "Waiting and admission",
        _table(("in the line", Right("")), [(name, Right(value)) for name, value in numbers]),
        _plot(sale, "Fans who joined and were called", {"joined": _summed(joined), "called": _summed(called)}),
        _figure(time_plot("Wait of the fans called, in seconds", [Line("median", p50), Line("95 %", p95)],
                          description="Seconds from joining to the call, over the time of the call")) if p50 else "",
    )  # fmt: skip


def _sell_through(sale: Sale) -> str:
    sales = {one.section_id: one for one in sale.orders.sections}
    rows = []
    for section in sale.flow.holds.sections:
        one = sales.get(section.section_id)
        rows.append((
            f"{section.section_id} {section.name}", section.on_sale, section.sold,
            percent(section.sold / section.on_sale) if section.on_sale else "", section.held, section.available,
            one.returned if one else 0, Right(_when(one.last_at)[11:] if one else ""),
            sale.suggested[section.section_id],
        ))  # fmt: skip
    head = ("section", "on sale", "sold", "sold %", "held", "left", "returned", Right("last sold"), "suggested")
    sold = [(step.step, step.tickets) for step in sale.orders.steps]
    return _section(
        "Tickets sold",
        _plot(sale, "Tickets sold", {"tickets": _summed(sold)}),
        _table(head, rows) + _types(sale),
        _traits(sale),
        _note("Suggested: the same tickets divided so that all sections would have sold out together, by how fast each "
              "sold while it had tickets. For the next sale like this one."),
    )  # fmt: skip


def _types(sale: Sale) -> str:
    """What each price type sold; nothing of an event without types."""
    rows = [
        (one.name, one.sold, one.returned, Right(format_money(one.paid_minor, one.currency)))
        for one in sale.orders.types
    ]
    head = ("price type", "sold", "returned", Right("all that they cost"))
    return _table(head, rows, caption="By price type, with discounts, fees and taxes") if rows else ""


def _traits(sale: Sale) -> str:
    """Empty if the event file names no places with traits."""
    rows = [
        (trait.replace("_", " "), n.capacity, n.sold, percent(n.sold / n.capacity) if n.capacity else "", n.held,
         n.available)
        for trait, n in sale.traits.items()
    ]  # fmt: skip
    return _table(("places", "in all", "sold", "sold %", "held", "left"), rows) if rows else ""


def _holds(sale: Sale) -> str:
    flow = sale.flow.holds
    by_status = [(status.replace("_", " "), count) for status, count in flow.by_status.items()]
    released = [(reason, count) for reason, count in sale.holds.released.items()]
    lines = {
        name: [(step.step, getattr(step, name)) for step in sale.holds.steps if getattr(step, name)]
        for name in ("held", "confirmed", "expired", "cancelled")
    }
    return _section(
        "Holds",
        _plot(
            sale, "Holds begun, and how they ended", {name: _summed(points) for name, points in lines.items() if points}
        ),
        _table(("holds now", "number"), by_status, caption=f"{flow.holds:,} holds of {flow.fans_held:,} fans"),
        _table(("places released because", "reservations"), released) if released else "",
    )


def _kept_minor(money: EventMoney) -> int:
    return money.charged_minor - money.refunded_minor - money.disputed_minor


def _payments(sale: Sale) -> str:
    flow = sale.flow.orders
    orders = [(status.replace("_", " "), count) for status, count in flow.by_status.items() if count]
    declines = list(flow.declines.items())
    unsold = [(one.status.replace("_", " "), one.reason, one.orders) for one in sale.orders.unsold]
    money = [
        (one.currency, one.charges, Right(format_money(one.charged_minor, one.currency)), one.refunds,
         Right(format_money(one.refunded_minor, one.currency)),
         Right(format_money(one.refunded_outside_minor, one.currency)),
         one.disputes, Right(format_money(one.disputed_minor, one.currency)),
         Right(format_money(_kept_minor(one), one.currency)))
        for one in sale.orders.money
    ]  # fmt: skip
    return _section(
        "Orders, payments and refunds",
        _table(("orders now", "number"), orders),
        _table(("not sold", "because", "orders"), unsold) if unsold else "",
        _table(("payment declined because", "payments"), declines) if declines else "<p>No payment was declined.</p>",
        _table(("currency", "charges", Right("charged"), "refunds", Right("refunded"), Right("of it at the provider"),
                "disputes", Right("withdrawn"), Right("kept")), money)
        if money else "<p>Nothing was charged.</p>",
    )  # fmt: skip


def _changes(sale: Sale) -> str:
    rows = [
        (When(_when(change.entry.at)), change.entry.actor, f"{change.service}: {change.entry.action}",
         Wide(_difference(change)), Wide(change.entry.reason or ""))
        for change in sale.changes
    ]  # fmt: skip
    table = _table(("when", "who", "what", "changed", "reason"), rows) if rows else "<p>Nothing was changed.</p>"
    left_out = _note("Older changes are left out; the audit log has all.") if sale.changes_left_out else ""
    return _section("Changes by operators", table, left_out)


def _difference(change: OperatorChange) -> str:
    before, after = change.entry.before or {}, change.entry.after or {}
    names = [name for name in after if name not in HIDDEN_CHANGES and before.get(name) != after[name]]
    if not before:
        return ", ".join(names[:CHANGED_MAX])
    shown = [f"{name}: {_short(before.get(name))} → {_short(after[name])}" for name in names[:CHANGED_MAX]]
    return "; ".join([*shown, *(["…"] if len(names) > CHANGED_MAX else [])])


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return "…"
    text = "none" if value is None else str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


def _invariants(sale: Sale) -> str:
    if sale.broken_off is not None:
        failed = f"The invariants could not be checked when this report was made: {sale.broken_off}"
        return _section("Invariants", f'<p class="bad">{escape(failed)}</p>')
    broken = sum(not row.holds for row in sale.invariants)
    verdict = f"{broken} of {len(sale.invariants)} do not hold." if broken else f"All {len(sale.invariants)} hold."
    rows = [
        (row.service, Wide(row.invariant), YES if row.holds else NO, Wide(row.detail))
        for row in sale.invariants
    ]  # fmt: skip
    return _section(
        "Invariants", f'<p class="{"bad" if broken else "good"}">{verdict}</p>',
        _table(("service", "invariant", "holds", "detail"), rows),
    )  # fmt: skip


def _foot(sale: Sale) -> str:
    return (
        f'<footer class="note">From the databases of {escape(sale.event_id)}, {_when(sale.made_at)} UTC. '
        "Counts are exact at that moment; docs/use/reports.md of Onsale says what each means.</footer>"
    )


class Raw(str):
    """A finished cell."""

    __slots__ = ()


YES, NO = Raw('<td class="good">yes</td>'), Raw('<td class="bad">NO</td>')


class Right(str):
    """A text aligned as a number."""

    __slots__ = ()


class Wide(str):
    """A text that may be long."""

    __slots__ = ()


class When(str):
    """A time."""

    __slots__ = ()


CLASSES = {Right: "n", int: "n", Wide: "wide", When: "when"}


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """Cells are escaped. A column of numbers is headed on the right, too."""
    listed = [list(row) for row in rows]
    first: Sequence[Any] = listed[0] if listed else ()
    right = [
        isinstance(title, Right) or (n < len(first) and _class_of(first[n]) == "n") for n, title in enumerate(head)
    ]
    titles = "".join(
        f"<th{' class=n' if aligned else ''}>{escape(title)}</th>" for title, aligned in zip(head, right, strict=True)
    )
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>\n" for row in listed)
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{named}<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'


def _cell(cell: Any) -> str:
    if isinstance(cell, Raw):
        return cell
    name = _class_of(cell)
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return f"<td{f' class={name}' if name else ''}>{escape(text)}</td>"


def _class_of(cell: Any) -> str:
    return "n" if isinstance(cell, str) and cell[:1].isdigit() and cell.endswith("%") else CLASSES.get(type(cell), "")


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "</section>"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def _plot(sale: Sale, title: str, lines: dict[str, list[tuple[int, int]]]) -> str:
    """Totals over the sale, each from 0 at its beginning to its end."""
    if not any(lines.values()):
        return ""
    _, end = sale.flow.span
    end_s = (end - sale.start).total_seconds()
    drawn = []
    for name, points in lines.items():
        at = [(min(end_s, (step + 1) * sale.step_s), total) for step, total in points]
        last = at[-1][1] if at else 0
        drawn.append(Line(name, [(0.0, 0.0), *at, (end_s, last)]))
    return _figure(time_plot(title, drawn, description=f"{title}: totals over the time since the sale began"))


def _summed(points: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Running totals by step."""
    listed = list(points)
    return list(zip((step for step, _ in listed), accumulate(count for _, count in listed), strict=True))
