"""The result of a night: what held, how long fans waited, what it cost, and its picture."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from bench.harness.load import quantile
from bench.harness.measurement import verdict
from bench.night.crowd import CONNECTIONS, Plan
from bench.night.suite import Record, Rules
from bench.record import front
from bench.record.digest import digest
from bench.record.page_blocks import Block
from bench.scale import plan_and_night, simulation
from features.reports.page import Line, line_plot

APART = frozenset({"sandbox"})  # other people's server
RATE_OVER_S = 5
THE_NIGHT, THE_CALLS = Block("the night", "`make night`"), Block("the calls of the night", "`make night`")
WHOLE_S, WITHOUT_5XX, STREAMS = 240, 0.9999, 50_000
P99_MS = {"join": 500, "pass": 500, "hold": 500, "order": 500, "status": 2_000}
CALL_HEADINGS = ("call", "calls", "p50 ms", "p95 ms", "p99 ms", "of it before it was sent, p99 ms", "answers")


@dataclass(frozen=True)
class Night:
    """One night. `spent_s` is processor time by service and database."""

    plan: Plan
    tickets: int
    record: Record
    rules: Rules
    spent_s: Mapping[str, float]
    wrong_books: list[str]

    @property
    def failures(self) -> list[str]:
        """The guarantees that did not hold."""
        record, observed = self.record, self.record.observations
        told = record.total("confirmed") + record.total("informed")
        return [
            *observed.failures,
            *(f"{count} times {what}" for what, count in sorted(record.failed.items())),
            *self.wrong_books,
            *([f"{observed.tickets_sold} of {self.tickets} tickets sold"]
              if observed.tickets_sold != min(self.tickets, self.plan.fans) else []),
            *([f"{self.plan.fans - told} fans never heard"] if told != self.plan.fans else []),
        ]  # fmt: skip

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all services and databases."""
        return sum(seconds for name, seconds in self.spent_s.items() if name not in APART)

    def figures(self) -> dict[str, Any]:
        """The night as numbers, and the settings of both sides."""
        record, observed, rules = self.record, self.record.observations, self.rules
        calls, errors = record.checkout_calls
        return {
            "fans": self.plan.fans, "tickets": self.tickets, **asdict(rules),
            "arrive_over_s": self.plan.arrive_over_s, "notifiers": len(self.plan.notifier_ports),
            "connections": {pool: [record.connections[pool], most] for pool, most in CONNECTIONS.items()},
            "seconds": round(record.took_s, 1), "sold_out_s": 1 + max(record.per_second["confirmed"], default=0),
            "streams": record.streams_most, "streams_lost": record.streams_lost,
            "sold": observed.tickets_sold, "oversold": observed.oversold, "inversions": observed.inversions,
            "duplicate_numbers": observed.duplicate_numbers, "wrong_books": self.wrong_books,
            "joins_per_s": round(record.busiest("joined", RATE_OVER_S)),
            "admissions_per_s": round(record.busiest("admitted", RATE_OVER_S)),
            "confirmed_per_s": round(record.busiest("confirmed", RATE_OVER_S)),
            "checkout_calls": calls, "checkout_errors": errors,
            "confirmed_after_s": _quantiles(record.confirmed_after_s, p50=0.5, p95=0.95),
            "calls_ms": {name: {"count": len(each.took_ms), **_quantiles(each.took_ms, p50=0.5, p95=0.95, p99=0.99),
                                "unsent_p99": _quantiles(each.unsent_ms, p99=0.99)["p99"],
                                "answers": dict(each.statuses)}
                         for name, each in sorted(record.calls.items())},
            "late_ms": _quantiles(record.late_ms, p50=0.5, p99=0.99, max=1.0),
            "cpu_s": {name: round(seconds, 1) for name, seconds in sorted(self.spent_s.items())},
            "cpu_s_total": round(self.cpu_s, 1), "cpu_s_crowd": round(record.generator_cpu_s, 1),
            "mb_to_fans": round(record.bytes_received / 1e6, 1), "mb_from_fans": round(record.bytes_sent / 1e6, 1),
            "frames": record.frames, "went_home": dict(record.went_home), "failures": self.failures,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "code": digest("night"),
        }  # fmt: skip

    def show(self, console: Console, *, core_hour: float) -> None:
        """Prints the night; `core_hour` is the price of an hour of a rented core."""
        figures = self.figures()
        aims = Table("", "this night", "at least", "", title=f"{self.plan.fans:,} fans, {self.tickets:,} tickets")
        for verdict_row in aims_of(figures):
            aims.add_row(*verdict_row)
        calls = Table(*CALL_HEADINGS)
        for row in call_rows(figures):
            calls.add_row(*row)
        for table in (aims, self._facts(figures), calls, self._cost(core_hour)):
            console.print(table)
        console.print(settings_of(figures), own_delay_of(figures), sep="\n", style="dim", soft_wrap=True)
        for failure in self.failures:
            console.print(f"[red]failed:[/] {failure}")

    def _facts(self, figures: Mapping[str, Any]) -> Table:
        table = Table(show_header=False)
        table.add_row("streams lost", f"{figures['streams_lost']:,}")
        for name in ("joins", "admissions", "confirmed"):
            table.add_row(f"{name} per second, best {RATE_OVER_S} s", f"{figures[f'{name}_per_s']:,}")
        after_s = figures["confirmed_after_s"]
        table.add_row("confirmed after the order, p50, p95", f"{after_s['p50']} s, {after_s['p95']} s")
        for why, count in self.record.went_home.most_common():
            table.add_row(f"went home: {why}", f"{count:,}")
        return table

    def _cost(self, core_hour: float) -> Table:
        table = Table("processor seconds", "", title="what it cost", show_header=True)
        for name, seconds in sorted(self.spent_s.items(), key=lambda item: -item[1]):
            table.add_row(name + (" (apart)" if name in APART else ""), f"{seconds:,.1f}")
        table.add_row("services and databases", f"{self.cpu_s:,.1f}")
        table.add_row("the crowd itself (apart)", f"{self.record.generator_cpu_s:,.1f}")
        table.add_row("in rented cores", f"{self.cpu_s / 3600 * core_hour:.4f} at {core_hour:g} a core and hour")
        received, sent = self.record.bytes_received, self.record.bytes_sent
        table.add_row("bytes to fans, from fans", f"{received / 1e6:,.0f} MB, {sent / 1e6:,.0f} MB")
        return table

    def picture(self) -> str:
        """Joins, admissions, stock and waits over time, as SVG."""
        record = self.record
        seconds = range(int(record.took_s) + 1)

        def rate(what: str) -> Line:
            counts = record.per_second[what]
            return Line(what, [
                (first, sum(counts[s] for s in range(first, first + RATE_OVER_S)) / RATE_OVER_S)
                for first in seconds[::RATE_OVER_S]
            ])  # fmt: skip

        def left(what: str) -> Line:
            gone, points = 0, []
            for s in seconds:
                gone += record.per_second[what][s]
                points.append((s, self.tickets - gone))
            return Line({"held": "not held", "confirmed": "not confirmed"}[what], points)

        waits = [(s, quantile(record.waits_s[s], 0.5)) for s in sorted(record.waits_s)]
        return line_plot([
            ("Joins per second", [rate("joined")]),
            ("Admitted and confirmed per second", [rate("admitted"), rate("confirmed")]),
            ("Tickets left", [left("held"), left("confirmed")]),
            ("Wait of those admitted, seconds", [Line("wait", waits)]),
        ])  # fmt: skip

    def save(self, root: Path) -> None:
        """Writes the figures, the picture, and the tables of documents, those of the plan and of the simulation too."""
        text = orjson.dumps(
            self.figures(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
        )
        (root / "bench" / "results" / "night.json").write_bytes(text)
        (root / "docs" / "images" / "night.svg").write_text(self.picture())
        figures = orjson.loads(text)
        page = root / "docs" / "explain" / "benchmarks.md"
        page.write_text(page_with(page.read_text(), figures))
        front.write_measured()
        plan_and_night.write()
        simulation.write()


def aims_of(figures: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What a night must come to: the figure, the least, and whether it was met. The times are those of all calls, from
    when a fan wanted one, whatever the crowd itself added.
    """
    whole_s, without_5xx = figures["seconds"], 1 - figures["checkout_errors"] / max(1, figures["checkout_calls"])
    promises = [figures[name] for name in ("oversold", "duplicate_numbers", "inversions")]
    wrong, sold = len(figures["wrong_books"]), figures["sold"]
    rows = [
        ("from the first fan until the last has heard", f"{whole_s:.0f} s", f"at most {WHOLE_S} s", whole_s <= WHOLE_S),
        ("sold, paid and confirmed", f"{sold:,}", f"{figures['tickets']:,}", sold == figures["tickets"]),
        ("oversold, numbers given twice, fans overtaken", ", ".join(map(str, promises)), "0", not any(promises)),
        ("wrong in stock, charges and invariants", str(wrong), "0", not wrong),
        ("streams at once", f"{figures['streams']:,}", f"{STREAMS:,}", figures["streams"] >= STREAMS),
        ("checkout calls without 5xx", f"{without_5xx:.3%} of {figures['checkout_calls']:,}",
         f"{WITHOUT_5XX:.2%}", without_5xx >= WITHOUT_5XX),
    ]  # fmt: skip
    for name, most_ms in P99_MS.items():
        if name in figures["calls_ms"]:
            p99_ms = figures["calls_ms"][name]["p99"]
            rows.append((f"{name}, p99", f"{p99_ms:,.0f} ms", f"at most {most_ms:,} ms", p99_ms <= most_ms))
    return [(what, figure, least, verdict(met=met)) for what, figure, least, met in rows]


def call_rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """All calls of the night. A record of before a column was measured has none of it."""
    rows = []
    for name, call in sorted(figures["calls_ms"].items()):
        answers = ", ".join(f"{count:,} × {status}" for status, count in sorted(call["answers"].items()))
        times = (f"{call[key]:,.0f}" if key in call else "–" for key in ("p50", "p95", "p99", "unsent_p99"))
        rows.append((name, f"{call['count']:,}", *times, answers))
    return rows


def settings_of(figures: Mapping[str, Any]) -> str:
    """How the suite was set, and the crowd."""
    told = {
        "begin_s": "the sale begins after {:.0f} s", "rate_per_s": "{:g} calls a second", "max_active": "{:,} inside",
        "polls_per_s": "`GATEWAY_POLLS_PER_S` {:,}", "liveness_s": "a place lives {:.0f} s without a sign",
        "window_ms": "a frame every {:,} ms", "notifiers": "{} notifiers, one process of each other service",
        "arrive_over_s": "fans come over {:.0f} s",
    }  # fmt: skip
    return "Settings: " + "; ".join(words.format(figures[key]) for key, words in told.items() if key in figures) + "."


def own_delay_of(figures: Mapping[str, Any]) -> str:
    """What the crowd itself added to its figures, as far as it was measured."""
    if "late_ms" not in figures:
        return ""
    late, pools = figures["late_ms"], figures["connections"]
    used = ", ".join(f"{pool} {most:,} of {limit:,}" for pool, (most, limit) in pools.items())
    return (
        f"The crowd's own delay: its timers ran late by {late['p50']:,.0f} ms in the median, {late['p99']:,.0f} ms at "
        f"p99, {late['max']:,.0f} ms at most; connections used: {used}. It is part of the times above."
    )


def page_with(page: str, figures: Mapping[str, Any]) -> str:
    """The page of benchmarks with this night."""
    return THE_CALLS.replaced(THE_NIGHT.replaced(page, table(figures)), calls_table(figures))


def table(figures: Mapping[str, Any]) -> str:
    """The saved figures of a night as the page of benchmarks shows them."""
    best = ", ".join(f"{figures[f'{name}_per_s']:,}" for name in ("joins", "admissions", "confirmed"))
    facts = {
        "fans, tickets": f"{figures['fans']:,}, {figures['tickets']:,}",
        "joins, admissions, confirmations a second, best five seconds": best,
        "processor time of services and databases, of the crowd":
            f"{figures['cpu_s_total']:,.0f} s, {figures['cpu_s_crowd']:,.0f} s",
        "bytes to fans": f"{figures['mb_to_fans']:,.0f} MB",
    }  # fmt: skip
    rows = [*aims_of(figures), *((name, value, "", "") for name, value in facts.items())]
    lines = ["| the night | | at least | |", "|---|---:|---:|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, "", f"{settings_of(figures)} The night of {figures['date']}."])


def calls_table(figures: Mapping[str, Any]) -> str:
    """All calls of a saved night, and what the crowd itself added."""
    lines = [f"| {' | '.join(CALL_HEADINGS)} |", "|---|---:|---:|---:|---:|---:|---|"]
    lines += [f"| {' | '.join(row)} |" for row in call_rows(figures)]
    return "\n".join([*lines, "", own_delay_of(figures)])


def _quantiles(values: Sequence[float], **shares: float) -> dict[str, float]:
    return {name: round(quantile(values, share), 1) for name, share in shares.items()}
