"""The result of a night: what held, how long fans waited, what it cost, and its picture."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from bench.harness.load import quantile
from bench.night.crowd import Plan
from bench.night.record import Record
from bench.night.suite import LIVENESS_S, POLLS_PER_S
from bench.record import front
from bench.record.digest import digest
from bench.record.page_blocks import Block
from bench.scale import plan_and_night, simulation
from shared.report.svg_plot import Line, line_plot

APART = frozenset({"sandbox"})  # other people's server
RATE_OVER_S = 5
THE_NIGHT = Block("the night", "`make night`")


@dataclass(frozen=True)
class Night:
    """One night. `spent_s` is processor time by service and database."""

    plan: Plan
    tickets: int
    record: Record
    spent_s: Mapping[str, float]
    wrong_books: list[str]
    max_active: int = 0
    rate_per_s: float = 0
    begin_s: float = 0

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
        """The night as numbers."""
        record, observed = self.record, self.record.observations
        calls, errors = record.checkout_calls
        return {
            "fans": self.plan.fans, "tickets": self.tickets, "max_active": self.max_active,
            "rate_per_s": self.rate_per_s, "begin_s": self.begin_s, "liveness_s": LIVENESS_S,
            "polls_per_s": POLLS_PER_S, "seconds": round(record.took_s, 1),
            "sold_out_s": 1 + max(record.per_second["confirmed"], default=0),
            "streams": record.streams_most, "streams_lost": record.streams_lost,
            "sold": observed.tickets_sold, "oversold": observed.oversold, "inversions": observed.inversions,
            "duplicate_numbers": observed.duplicate_numbers, "wrong_books": self.wrong_books,
            "joins_per_s": round(record.busiest("joined", RATE_OVER_S)),
            "admissions_per_s": round(record.busiest("admitted", RATE_OVER_S)),
            "confirmed_per_s": round(record.busiest("confirmed", RATE_OVER_S)),
            "checkout_calls": calls, "checkout_errors": errors,
            "confirmed_after_s": {"p50": round(quantile(record.confirmed_after_s, 0.5), 1),
                                  "p95": round(quantile(record.confirmed_after_s, 0.95), 1)},
            "calls_ms": {name: {"count": len(each.took_ms), "p50": round(quantile(each.took_ms, 0.5), 1),
                                "p99": round(quantile(each.took_ms, 0.99), 1), "answers": dict(each.statuses)}
                         for name, each in sorted(record.calls.items())},
            "cpu_s": {name: round(seconds, 1) for name, seconds in sorted(self.spent_s.items())},
            "cpu_s_total": round(self.cpu_s, 1), "cpu_s_crowd": round(record.generator_cpu_s, 1),
            "mb_to_fans": round(record.bytes_received / 1e6, 1), "mb_from_fans": round(record.bytes_sent / 1e6, 1),
            "frames": record.frames, "went_home": dict(record.went_home), "failures": self.failures,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "code": digest("night"),
        }  # fmt: skip

    def show(self, console: Console, *, core_hour: float) -> None:
        """Prints the night; `core_hour` is the price of an hour of a rented core."""
        for table in (self._guarantees(), self._calls(), self._cost(core_hour)):
            console.print(table)
        for failure in self.failures:
            console.print(f"[red]failed:[/] {failure}")

    def _guarantees(self) -> Table:
        figures = self.figures()
        calls, errors = figures["checkout_calls"], figures["checkout_errors"]
        table = Table(
            title=f"{self.plan.fans:,} fans, {self.tickets:,} tickets, {figures['seconds']} s", show_header=False
        )
        for name in ("sold", "oversold", "duplicate_numbers", "inversions"):
            table.add_row(name.replace("_", " "), f"{figures[name]:,}")
        table.add_row("wrong in the books", ", ".join(self.wrong_books) or "0")
        table.add_row("streams held, lost", f"{figures['streams']:,}, {figures['streams_lost']:,}")
        for name in ("joins", "admissions", "confirmed"):
            table.add_row(f"{name} per second, best {RATE_OVER_S} s", f"{figures[f'{name}_per_s']:,}")
        table.add_row("checkout calls without 5xx", f"{1 - errors / max(1, calls):.4%} of {calls:,}")
        after_s = figures["confirmed_after_s"]
        table.add_row("confirmed after the order, p50, p95", f"{after_s['p50']} s, {after_s['p95']} s")
        for why, count in self.record.went_home.most_common():
            table.add_row(f"went home: {why}", f"{count:,}")
        return table

    def _calls(self) -> Table:
        table = Table("call", "answers", "p50 ms", "p99 ms")
        for name, each in self.figures()["calls_ms"].items():
            answers = "  ".join(f"{status}: {count:,}" for status, count in sorted(each["answers"].items()))
            table.add_row(name, answers, f"{each['p50']:,.1f}", f"{each['p99']:,.1f}")
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
        page = root / "docs" / "explain" / "benchmarks.md"
        page.write_text(THE_NIGHT.replaced(page.read_text(), table(orjson.loads(text))))
        front.write_measured()
        plan_and_night.write()
        simulation.write()


def table(figures: Mapping[str, Any]) -> str:
    """The saved figures of a night as the page of benchmarks shows them."""
    calls, p99 = figures["checkout_calls"], {name: each["p99"] for name, each in figures["calls_ms"].items()}
    share = 1 - figures["checkout_errors"] / max(1, calls)
    rows = {
        "fans who joined, tickets, streams held": ", ".join(
            f"{figures[name]:,}" for name in ("fans", "tickets", "streams")
        ),
        "from the first join until the last fan has heard": f"{figures['seconds']:.0f} s",
        "sold, paid and confirmed": f"{figures['sold']:,}",
        "oversold, numbers given twice, fans overtaken": ", ".join(
            str(figures[name]) for name in ("oversold", "duplicate_numbers", "inversions")
        ),
        "wrong in stock, charges and invariants": str(len(figures["wrong_books"])),
        "joins, admissions, confirmations a second, best five seconds": ", ".join(
            f"{figures[f'{name}_per_s']:,}" for name in ("joins", "admissions", "confirmed")
        ),
        "p99 of join, pass, hold, order": ", ".join(
            f"{p99[name]:,.0f} ms" for name in ("join", "pass", "hold", "order")
        ),
        "checkout calls without 5xx": f"{share:.2%} of {calls:,}",
        "processor time of services and databases": f"{figures['cpu_s_total']:,.0f} s",
        "bytes to fans": f"{figures['mb_to_fans']:,.0f} MB",
    }
    return "\n".join(["| the night | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())])
