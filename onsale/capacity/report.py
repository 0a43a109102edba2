"""Prints a plan: the sale, its two moments, services, databases and network, and what breaks first."""

from rich import box
from rich.console import Console
from rich.table import Table

from onsale.capacity.coefficients import Coefficients
from onsale.capacity.resources import DatabaseResources, Plan, RedisResources, ServiceResources

HOUR_S = 3600
INPUT_ROWS = {
    "join": "joins/s",
    "claim": "passes/s",
    "status": "polls of their status/s",
    "read": "reads of the public line/s",
    "sign": "heartbeats/s",
    "seats": "seat pages/s",
    "hold": "holds/s",
    "order": "orders/s",
    "frame": "frames to listeners/s",
}


def print_plan(out: Console, plan: Plan, known: Coefficients) -> None:
    """Prints the whole plan."""
    sale = plan.sale
    out.print(
        f"Call {_number(sale.rate_per_s)} fans a second (rate_per_s), {sale.max_active:,} inside at once (max_active): "
        f"{sale.admissions:,} are called, {sale.orders:,.0f} buy, {sale.left_out:,} are in line until it is sold out.",
        soft_wrap=True,
    )
    for table in (_moments(plan), _services(plan), _databases(plan), _limits(plan)):
        out.print()
        out.print(table)
    out.print()
    first = plan.limits[0]
    verb = "breaks" if first.share > 1 else "would break"
    out.print(f"{first.name[0].upper()}{first.name[1:]} {verb} first. What helps: {first.remedy}.", soft_wrap=True)
    if plan.untested:
        beyond = (f"{_number(one.planned)} {one.name} (measured: {_number(one.tested)})" for one in plan.untested)
        out.print(f"Never measured: {', '.join(beyond)}.", soft_wrap=True)
    dates = sorted(measured.date for measured in known.measurements.values())
    machines = "; ".join(sorted({measured.machine for measured in known.measurements.values()}))
    out.print(f"Calculated from measurements of {dates[0]} to {dates[-1]} on {machines}.", soft_wrap=True)


def _moments(plan: Plan) -> Table:
    table = _table("", "end of the first minute", "when all wait")
    rush, height = plan.moments
    table.add_row("places waiting", _number(rush.waiting), _number(height.waiting))
    table.add_row("open streams", _number(rush.streams), _number(height.streams))
    for name, label in INPUT_ROWS.items():
        table.add_row(label, _number(rush.per_s[name]), _number(height.per_s[name]))
    return table


def _services(plan: Plan) -> Table:
    cores = ("busy cores, first minute", "busy cores, all wait", "core hours in all")
    table = _table("", "processes", *cores, "number decided by")
    for one in plan.services:
        table.add_row(one.name, f"{one.processes:,}", *_cores(one), one.decided_by)
    for name, part in (("PostgreSQL", plan.database), ("Redis", plan.redis)):
        table.add_row(name, "", *_cores(part), "")
    in_all = (f"{_number(plan.cores)} in the harder moment", "", _number(plan.whole_s / HOUR_S))
    table.add_row("in all", f"{plan.processes:,}", *in_all, "")
    return table


def _cores(part: ServiceResources | RedisResources | DatabaseResources) -> tuple[str, str, str]:
    return _number(part.cores_rush), _number(part.cores_height), _number(part.whole_s / HOUR_S)


def _databases(plan: Plan) -> Table:
    streams, redis, database, network = plan.streams, plan.redis, plan.database, plan.network
    table = _table("", "", "of it")
    table.add_row(
        "Redis memory", f"{_number(redis.memory_mib)} MiB",
        f"line {_number(redis.line_mib)}, holds and orders {_number(redis.holds_mib)}, "
        f"event log {_number(redis.log_mib)}",
    )  # fmt: skip
    table.add_row(
        "database writes", f"{_number(database.writes_per_s)} rows/s",
        f"WAL {_number(database.wal_mib_per_s)} MiB/s, {_number(database.disk_gib)} GiB on disk after the sale, "
        f"{database.connections:,} connections",
    )  # fmt: skip
    table.add_row(
        "streams of a notifier", f"{streams.per_process:,}",
        f"{_number(streams.memory_mib)} MiB in all notifiers; a frame is {_number(streams.frame_bytes)} bytes",
    )  # fmt: skip
    table.add_row(
        "bandwidth to fans", f"{_number(network.gbit_per_s)} Gbit/s",
        f"frames {_number(network.frames_gbit_per_s)}, answers {_number(network.answers_gbit_per_s)}",
    )  # fmt: skip
    table.add_row("sockets at the balancers", f"{network.sockets:,}", "one of each fan, one to a notifier a stream")
    return table


def _limits(plan: Plan) -> Table:
    table = _table("what breaks first", "needed", "available", "share")
    for one in plan.limits:
        table.add_row(
            one.name, f"{_number(one.needed)} {one.unit}".strip(), f"{_number(one.limit)}", f"{one.share:,.0%}"
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for n, heading in enumerate(headings):
        is_text = n == 0 or heading in ("of it", "number decided by")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    return table


def _number(value: float) -> str:
    """Three significant digits."""
    if value >= 100 or value == 0:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"
