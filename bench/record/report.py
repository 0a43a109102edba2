"""The figures of one measurement: a table for the terminal, and a section and lines of the summary for the report."""

from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.harness.measurement import Claim, Finding, Measurement, Round, Side

SUMMARY = ("what", "Onsale", "beside it", "ratio", "aims")
HEADINGS = ("", "min", "median", "max", "p50 ms", "p95 ms", "p99 ms", "other answers", "processor µs each")


def show(console: Console, measurement: Measurement | Finding) -> None:
    """One measurement on the terminal."""
    table = Table(title=_title(measurement), title_justify="left")
    for heading in _headings(measurement):
        table.add_column(heading, justify="right" if heading else "left")
    for row in _rows(measurement):
        table.add_row(*row)
    console.print(table)
    for sentence in _verdicts(measurement):
        console.print(sentence, style="bold")
    for sentence in _checked_sentences(measurement):
        console.print(sentence, style="dim")


def summary(lines: Iterable[Claim]) -> str:
    """One line a claim: the table that documents show."""
    return _table(SUMMARY, [(claim.what, claim.ours, claim.beside, claim.ratio, claim.aims) for claim in lines])


def claims(measurement: Measurement | Finding) -> list[Claim]:
    """Its lines of the summary."""
    return measurement.found.claims if isinstance(measurement, Finding) else measurement.claims()


def section(measurement: Measurement | Finding) -> str:
    """Its part of `RESULTS.md`."""
    parts = [
        f"## {measurement.key}: {measurement.title}",
        "\n".join(f"**{sentence}**  " for sentence in _verdicts(measurement)).rstrip(),
        *([f"{measurement.unit}:"] if isinstance(measurement, Measurement) else []),
        _table(_headings(measurement), _rows(measurement)),
        "\n".join(f"- {line}" for line in measurement.settings),
    ]
    checked = _checked_sentences(measurement)
    if checked:
        parts.append("Checked after every round:\n" + "\n".join(f"- {line}" for line in checked))
    return "\n\n".join(parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _title(measurement: Measurement | Finding) -> str:
    unit = f" ({measurement.unit})" if isinstance(measurement, Measurement) else ""
    return f"{measurement.key} · {measurement.title}{unit}"


def _headings(measurement: Measurement | Finding) -> Sequence[str]:
    if isinstance(measurement, Finding):
        return measurement.found.headings
    return HEADINGS


def _rows(measurement: Measurement | Finding) -> Sequence[Sequence[str]]:
    if isinstance(measurement, Finding):
        return measurement.found.rows
    return [_row(measurement, side) for side in measurement.sides]


def _row(measurement: Measurement, side: Side) -> list[str]:
    rounds = measurement.rounds[side.name]
    rates = sorted(round_.per_second for round_ in rounds)
    speeds = [f"{rate:,.0f}" for rate in (rates[0], median(rates), rates[-1])]
    times = [f"{median(getattr(round_, name) for round_ in rounds):.1f}" for name in ("p50_ms", "p95_ms", "p99_ms")]
    return [side.name, *speeds, *times, _other_answers(rounds), f"{measurement.cost_us(side):,.0f}"]


def _other_answers(rounds: Sequence[Round]) -> str:
    """Answers with another status, and broken connections, over all rounds."""
    counts: dict[str, int] = {}
    for round_ in rounds:
        for status, number in round_.other_statuses.items():
            counts[str(status)] = counts.get(str(status), 0) + number
        if round_.broken:
            counts["broken"] = counts.get("broken", 0) + round_.broken
    return ", ".join(f"{number} × {what}" for what, number in counts.items()) or "none"


def _checked_sentences(measurement: Measurement | Finding) -> list[str]:
    """The sentences that held in the last round, by side."""
    if isinstance(measurement, Finding):
        return measurement.found.checked
    return [f"{side.name}: {'; '.join(measurement.rounds[side.name][-1].checked)}" for side in measurement.sides]


def _verdicts(measurement: Measurement | Finding) -> list[str]:
    if isinstance(measurement, Finding):
        return [claim.sentence() for claim in claims(measurement)]
    low, high = (
        f"{ratio:{'.2f' if ratio < 1 else '.1f'}}" for ratio in (min(measurement.ratios), max(measurement.ratios))
    )
    return [f"RATIO {measurement.claim().ratio} (round by round {low} to {high}; {measurement.claim().aims})"]
