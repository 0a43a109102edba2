"""README's two commands as a benchmark: whole journeys, as everybody who tries the suite sees them first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.harness.measurement import (
    BARE_PER_CPU_S,
    US_PER_S,
    CheckFailed,
    Claim,
    Effort,
    Figures,
    Finding,
    Testbed,
    bare_per_cpu_s,
    verdict,
)
from bench.journey.commands import SUITE, Journey, Visitors, demo_suite

EVENT_ID, FANS, ARRIVE_OVER_S, QUICK_FANS, QUICK_S = "flash-2026", 2_000, 5.0, 40, 1.0
PER_S, P95_MS = (180, 300), (600, 250)
ALL_MS, SUITE_MS, POSTGRES_MS = (10.0, 7.0), 5.0, 1.3
FAULTS = {"400", "404", "422"}  # of the crowd or the suite, never a fan's
LABELS_MAX = 20
HEADINGS = ("part", "", "a fan", "p50 ms", "p95 ms", "p99 ms", "refused", "processor µs a fan")
CALLS = {
    "join": "POST /events/{event_id}/queue", "status": "GET /events/{event_id}/queue/status",
    "leave": "DELETE /events/{event_id}/queue", "claim": "POST /events/{event_id}/queue/pass",
    "event": "GET /events/{event_id}", "sections": "GET /events/{event_id}/sections",
    "seats": "GET /events/{event_id}/sections/{section_id}/seats", "hold": "POST /events/{event_id}/reservations",
    "release": "DELETE /events/{event_id}/reservations/{reservation_id}", "quote": "POST /orders/quote",
    "create_order": "POST /orders", "order": "GET /orders/{reference}",
    "cancel_order": "POST /orders/{reference}/cancel", "pay_again": "POST /orders/{reference}/payments",
}  # fmt: skip


def journey() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="J",
        title="whole journeys: README's two commands",
        settings=[
            "`onsale up --demo` in an empty data directory, then `onsale simulate --event-id "
            f"{EVENT_ID} --fans {FANS} --arrive-over {ARRIVE_OVER_S:g}`, as README has them: the "
            "suite, PostgreSQL, Valkey, the payment sandbox and the crowd share the machine, nothing is tuned. Each "
            "round begins with another empty directory; figures are medians of the rounds.",
            "Times are the crowd's: each attempt of a call from when the fan wanted it, waiting for a connection "
            "included. Refused: answers with 429 or 5xx, and no answer, of all rounds.",
            "Processor time is the kernel's, by process, while the crowd was there. What the suite spends on each "
            "kind of request and in tasks of its own is a share of samples, taken in one more round; work that "
            "requests share, such as a batch of holds, is a task of its own.",
            "After every round the databases are compared with the provider's charges and the invariants are audited; "
            "after the sampled one also with what every fan was told.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs the commands several times, and once with samples."""
    fans, arrive_over_s = (QUICK_FANS, QUICK_S) if effort.quick else (FANS, ARRIVE_OVER_S)
    visitors, runs = Visitors.simulated(EVENT_ID, fans=fans, arrive_over_s=arrive_over_s), list[Journey]()
    bare = await bare_per_cpu_s(testbed, effort)
    for number in range(1, effort.rounds + 1):
        async with demo_suite(testbed.data_dir / f"journey-{number}") as suite:
            runs.append(await suite.visit(visitors))
            await suite.check_books(EVENT_ID)
    async with demo_suite(testbed.data_dir / "journey-sampled", sampled=True) as suite:
        async with suite.sampled() as samples:
            observed = await suite.visit(visitors, history=True)
        await suite.check_books(EVENT_ID)
    for each in (*runs, observed):
        require_guarantees(each)
    return figures(runs, samples, fans, bare)


def require_guarantees(run: Journey) -> None:
    """Raises `CheckFailed` if a fan saw a guarantee broken. Fans who gave up because of refusals are shown instead."""
    broken = {name: run.crowd[name] for name in ("oversold", "inversions", "duplicate_numbers") if run.crowd[name]}
    broken |= {name: call["answers"] for name, call in run.crowd["calls_ms"].items() if call["answers"].keys() & FAULTS}
    if broken or not run.crowd["bought"]:
        raise CheckFailed(f"{run.crowd['bought']} bought; {broken}")


def figures(runs: Sequence[Journey], samples: Mapping[str, int], fans: int, bare: float) -> Figures:
    """The table and the claims of these runs. `bare` is what bare uvicorn answers per second of processor."""
    us = cost_us(runs, fans)
    inside = samples_us(samples, us.get(SUITE, 0.0))
    rows = [_call_row(name, calls, inside.pop(CALLS.get(name, name), 0.0), runs) for name, calls in _calls(runs)]
    rows += [_cost_row("process", name, each) for name, each in sorted(us.items(), key=lambda item: -item[1])]
    most = sorted(inside.items(), key=lambda item: -item[1])
    rows += [_cost_row("in the suite", name, each) for name, each in most[:LABELS_MAX]]
    rows.append(_cost_row("in the suite", "all other", sum(each for _, each in most[LABELS_MAX:])))
    checked = [f"{fans:,} fans: nothing oversold, nobody overtaken, no number twice; books and invariants right"]
    return Figures(HEADINGS, rows, _claims(runs, us, fans, bare), checked)


def cost_us(runs: Sequence[Journey], fans: int) -> dict[str, float]:
    """µs of processor a fan by process, the median of the runs."""
    parts = sorted({part for run in runs for part in run.spent_s})
    return {part: median(run.spent_s.get(part, 0.0) for run in runs) / fans * US_PER_S for part in parts}


def samples_us(samples: Mapping[str, int], suite_us: float) -> Counter[str]:
    """The suite's µs a fan by what the samples say it worked on."""
    count = sum(samples.values())
    return Counter({label: number / count * suite_us for label, number in samples.items()})


def refusals(answers: Mapping[str, int]) -> dict[str, int]:
    """How often each status was answered that refuses for a while; 0 is no answer."""
    return {status: count for status, count in answers.items() if status in ("0", "429") or status >= "500"}


def _calls(runs: Sequence[Journey]) -> Iterable[tuple[str, list[Mapping[str, Any]]]]:
    """Each call that every run has, with what each says of it; those that most fans make first."""
    names = set.intersection(*(set(run.crowd["calls_ms"]) for run in runs))
    found = {name: [run.crowd["calls_ms"][name] for run in runs] for name in names}
    return sorted(found.items(), key=lambda item: (-median(call["n"] for call in item[1]), item[0]))


def _call_row(name: str, calls: Sequence[Mapping[str, Any]], us: float, runs: Sequence[Journey]) -> tuple[str, ...]:
    times = (f"{median(call[each] for call in calls):,.0f}" for each in ("p50", "p95", "p99"))
    each = median(call["n"] / run.crowd["fans"] for call, run in zip(calls, runs, strict=True))
    statuses = Counter[str]()
    for call in calls:
        statuses.update(refusals(call["answers"]))
    share = sum(statuses.values()) / sum(call["n"] for call in calls)
    refused = f"{share:.1%}: " + ", ".join(f"{n} × {status}" for status, n in statuses.items()) if statuses else "–"
    return "call", name, f"{each:.2f}", *times, refused, f"{us:,.0f}"


def _cost_row(part: str, name: str, us: float) -> tuple[str, ...]:
    return part, name, "", "", "", "", "", f"{us:,.0f}"


def _claims(runs: Sequence[Journey], us: Mapping[str, float], fans: int, bare: float) -> list[Claim]:
    per_s = median(run.crowd["bought"] / run.crowd["seconds"] for run in runs)
    seconds, bought = median(run.crowd["seconds"] for run in runs), median(run.crowd["bought"] for run in runs)
    scale, all_ms = bare / BARE_PER_CPU_S, sum(us.values()) / 1000
    (slowest, calls), *_ = sorted(_calls(runs), key=lambda item: -median(call["p95"] for call in item[1]))
    p95_ms = median(call["p95"] for call in calls)
    refused = median(sum(sum(refusals(call["answers"]).values()) for call in run.crowd["calls_ms"].values())
                     for run in runs)  # fmt: skip
    asked = median(sum(call["n"] for call in run.crowd["calls_ms"].values()) for run in runs)
    parts = ", ".join(f"{name} {each / 1000:.1f}" for name, each in sorted(us.items(), key=lambda item: -item[1]))
    costs_met = (
        all_ms * scale <= ALL_MS[0]
        and us.get(SUITE, 0.0) / 1000 * scale <= SUITE_MS
        and us.get("PostgreSQL", 0.0) / 1000 * scale <= POSTGRES_MS
    )
    return [
        Claim("J whole purchases a second, README's two commands", f"{per_s:,.0f}/s",
              f"{bought:,.0f} of {fans:,} fans in {seconds:.1f} s", verdict(met=per_s >= PER_S[0]),
              f"at least {PER_S[0]}, aim {PER_S[1]}"),
        Claim("J processor time of a fan's journey, all in", f"{all_ms:.1f} ms", parts,
              f"{verdict(met=costs_met)}: {all_ms * scale:.1f} ms where bare uvicorn takes 40 µs, "
              f"here {US_PER_S / bare:.0f}",
              f"at most {ALL_MS[0]:g}, suite {SUITE_MS:g}, PostgreSQL {POSTGRES_MS:g}; aim {ALL_MS[1]:g}"),
        Claim("J slowest call, p95", f"{p95_ms:,.0f} ms", slowest, verdict(met=p95_ms <= P95_MS[0]),
              f"at most {P95_MS[0]} ms, aim {P95_MS[1]}"),
        Claim("J calls refused", f"{refused:,.0f}", f"of {asked:,.0f}", verdict(met=not refused), "0"),
    ]  # fmt: skip
