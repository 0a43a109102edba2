"""A plan as people read it: the sale, its two moments, services, engines and network, and what breaks first."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from onsale.capacity.coefficients import Coefficients
from onsale.capacity.needs import Plan

ASKED = {"join": "joins/s", "status": "polls of their status/s", "sign": "signs of life/s", "seats": "looks at seats/s",
         "hold": "holds/s", "order": "orders/s", "frame": "frames to listeners/s"}  # fmt: skip


def show(out: Console, plan: Plan, known: Coefficients) -> None:
    """All of it on the screen."""
    sale = plan.sale
    out.print(
        f"Call {_n(sale.rate_per_s)} fans a second (rate_per_s), {sale.max_active:,} inside at once (max_active): "
        f"{sale.admissions:,} are called, {sale.orders:,.0f} buy, {sale.left_out:,} are in line until it is sold out.",
        soft_wrap=True,
    )
    for table in (_moments(plan), _services(plan), _engines(plan), _limits(plan)):
        out.print()
        out.print(table)
    out.print()
    first = plan.limits[0]
    verb = "breaks" if first.share > 1 else "would break"
    out.print(f"{first.name[0].upper()}{first.name[1:]} {verb} first. What helps: {first.helps}.", soft_wrap=True)
    if plan.untried:
        beyond = (f"{_n(one.planned)} {one.name} (measured: {_n(one.tried)})" for one in plan.untried)
        out.print(f"Never tried: {', '.join(beyond)}.", soft_wrap=True)
    dates = sorted(measured.date for measured in known.measurements.values())
    machines = "; ".join(sorted({measured.machine for measured in known.measurements.values()}))
    out.print(f"Counted from what was measured {dates[0]} to {dates[-1]} on {machines}.", soft_wrap=True)


def _moments(plan: Plan) -> Table:
    table = _table("", "end of the first minute", "when all wait")
    rush, height = plan.moments
    table.add_row("places waiting", _n(rush.waiting), _n(height.waiting))
    table.add_row("open streams", _n(rush.streams), _n(height.streams))
    for name, label in ASKED.items():
        table.add_row(label, _n(rush.per_s[name]), _n(height.per_s[name]))
    return table


def _services(plan: Plan) -> Table:
    table = _table("", "processes", "busy cores, first minute", "busy cores, all wait", "number decided by")
    for one in plan.services:
        table.add_row(one.name, f"{one.processes:,}", _n(one.cores_rush), _n(one.cores_height), one.decided_by)
    for name, part in (("PostgreSQL", plan.database), ("Redis", plan.engine)):
        table.add_row(name, "", _n(part.cores_rush), _n(part.cores_height), "")
    table.add_row("in all", f"{plan.processes:,}", f"{_n(plan.cores)} in the harder moment", "", "")
    return table


def _engines(plan: Plan) -> Table:
    streams, engine, database, network = plan.streams, plan.engine, plan.database, plan.network
    table = _table("", "", "of it")
    table.add_row(
        "Redis memory", f"{_n(engine.memory_mib)} MiB",
        f"line {_n(engine.line_mib)}, holds and orders {_n(engine.holds_mib)}, event log {_n(engine.log_mib)}",
    )  # fmt: skip
    table.add_row(
        "database writes", f"{_n(database.writes_per_s)} rows/s",
        f"WAL {_n(database.wal_mib_per_s)} MiB/s, {_n(database.disk_gib)} GiB on disk after the sale, "
        f"{database.connections:,} connections",
    )  # fmt: skip
    table.add_row(
        "streams of a notifier", f"{streams.per_process:,}",
        f"{_n(streams.memory_mib)} MiB in all notifiers; a frame is {_n(streams.frame_bytes)} bytes",
    )  # fmt: skip
    table.add_row(
        "bandwidth to fans", f"{_n(network.gbit_per_s)} Gbit/s",
        f"frames {_n(network.frames_gbit_per_s)}, answers {_n(network.answers_gbit_per_s)}",
    )  # fmt: skip
    table.add_row("sockets at the balancers", f"{network.sockets:,}", "one of each fan, one to a notifier a stream")
    return table


def _limits(plan: Plan) -> Table:
    table = _table("what breaks first", "asked", "there is", "share")
    for one in plan.limits:
        table.add_row(one.name, f"{_n(one.asked)} {one.unit}".strip(), f"{_n(one.limit)}", f"{one.share:,.0%}")
    return table


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    _columns(table, headings)
    return table


def _columns(table: Table, headings: Sequence[str]) -> None:
    for n, heading in enumerate(headings):
        last_words = heading in ("of it", "number decided by")
        table.add_column(heading, justify="left" if n == 0 or last_words else "right", no_wrap=True)


def _n(value: float) -> str:
    """Three digits that mean something."""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"
