"""P13: a real on-sale replayed against the suite as `onsale up` starts it, as it was and with ten times the fans."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, verdict
from bench.journey.arrivals import BUSIEST, BUSY, RESERVATIONS, SECONDS, SOLD_OUT_S, tickets
from bench.journey.commands import Visitors, demo_suite

EVENT_ID, RATE_PER_S = "replay", 200
TIMES, P99_MS, AIM_MS = (1, 10), 500, 300
HEADINGS = ("fans", "call", "calls", "p50 ms", "p95 ms", "p99 ms", "answers")
EVENT_FILE = """\
event_id: {event_id}
name: A replayed sale
venue: Here
currency: GBP
starts_at: 2030-07-16T12:00:00Z
room: {{rate_per_s: {rate}, burst: {rate}, max_active: 4000, session_s: 600, claim_window_s: 300}}
sales: {{hold_ttl_s: 300, pay_ttl_s: 600, tickets_per_order: 1, tickets_per_customer: 1}}
sections:
  - {{section_id: GA, name: Field, kind: ga, capacity: {tickets}, price_minor: 21500}}
"""


def replay() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P13",
        title="a real on-sale replayed",
        settings=[
            f"Electromagnetic Field 2026, by its published totals: {RESERVATIONS} reservations in {SECONDS} s, {BUSY} "
            f"of them in six seconds, {BUSIEST} in the busiest, sold out after {SOLD_OUT_S} s. The seconds between "
            "were not published: `bench/journey/arrivals.py` fills them in, always alike. At ten times, ten fans come "
            "for each.",
            f"`onsale up` with one event, which lets in {RATE_PER_S} fans a second; fans join, wait if they must, hold "
            "one ticket and pay with the sandbox. There are as many tickets as were asked for before it was sold out. "
            "Time in the line is no time of a call.",
            "The fans are those of `onsale simulate`, each attempt of a call counts from when the fan wanted it.",
        ],
        find=find,
    )  # fmt: skip


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Replays each size once."""
    rows, claims = list[tuple[str, ...]](), list[Claim]()
    for times in TIMES[:1] if effort.quick else TIMES:
        crowd = await _replayed(testbed.data_dir / f"replay-{times}", times)
        rows += call_rows(crowd, times)
        claims.append(claim(crowd, times))
    return Figures(HEADINGS, rows, claims, ["nothing oversold, nobody overtaken, every ticket sold, books right"])


async def _replayed(data_dir: Path, times: int) -> Mapping[str, Any]:
    event = data_dir.with_suffix(".yaml")
    event.write_text(EVENT_FILE.format(event_id=EVENT_ID, rate=RATE_PER_S, tickets=tickets(times)))
    visitors = Visitors(EVENT_ID, "bench.journey.replay_crowd", ("--times", str(times)))
    async with demo_suite(data_dir, "--event", str(event)) as suite:
        crowd = (await suite.visit(visitors)).crowd
        await suite.check_books(EVENT_ID)
    broken = [name for name in ("oversold", "inversions", "duplicate_numbers") if crowd[name]]
    if broken:
        raise CheckFailed(f"{times} times: {broken}")
    return crowd


def server_errors(crowd: Mapping[str, Any]) -> int:
    """Answers of 5xx, and calls without an answer."""
    return sum(
        count
        for call in crowd["calls_ms"].values()
        for status, count in call["answers"].items()
        if status == "0" or status >= "500"
    )


def call_rows(crowd: Mapping[str, Any], times: int) -> list[tuple[str, ...]]:
    """A row for each call."""
    rows = []
    for name, call in sorted(crowd["calls_ms"].items()):
        answers = ", ".join(f"{count:,} × {status}" for status, count in sorted(call["answers"].items()))
        quantiles = (f"{call[each]:,.0f}" for each in ("p50", "p95", "p99"))
        rows.append((f"{times} ×", name, f"{call['n']:,}", *quantiles, answers))
    return rows


def claim(crowd: Mapping[str, Any], times: int) -> Claim:
    """Whether nobody met an error, and the slowest call was quick enough."""
    errors = server_errors(crowd)
    slowest = max(crowd["calls_ms"], key=lambda name: crowd["calls_ms"][name]["p99"])
    p99_ms, sold = crowd["calls_ms"][slowest]["p99"], crowd["tickets_sold"]
    return Claim(
        f"P13 a real on-sale replayed, {times} ×", f"{errors} × 5xx; slowest call, {slowest}, p99 {p99_ms:,.0f} ms",
        f"{crowd['fans']:,} fans in {SECONDS} s, {sold:,} of {crowd['capacity']:,} tickets sold in "
        f"{crowd['seconds']:.0f} s",
        verdict(met=not errors and p99_ms <= P99_MS), f"0 × 5xx, p99 at most {P99_MS} ms, aim {AIM_MS}",
    )  # fmt: skip
