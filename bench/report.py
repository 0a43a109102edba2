"""The figures as a table for the terminal and as `bench/RESULTS.md`."""

from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.measurement import Measurement, Round, Side

HEADINGS = ("", "min", "median", "max", "p50 ms", "p95 ms", "p99 ms", "other answers")


def show(console: Console, measurement: Measurement) -> None:
    """One measurement on the terminal."""
    table = Table(title=f"{measurement.key} · {measurement.title} ({measurement.unit})", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for side in measurement.sides:
        table.add_row(*_row(measurement, side))
    console.print(table)
    console.print(_verdict(measurement), style="bold")


def document(
    measurements: Sequence[Measurement], *, machine: Mapping[str, str], engines: Mapping[str, str], date: str, how: str
) -> str:
    """The whole of `RESULTS.md`."""
    parts = [
        "# Measured, side by side",
        f"`{how}` on {date}. Both sides ran in the same minutes on the same machine and the same engines, taking turns "
        "round by round; only the side whose turn it was ran. Read the ratios: the load generator shares the cores.",
        *(_section(measurement) for measurement in measurements),
        "## Machine and versions",
        _list(machine),
        "## Engines, the same for both sides",
        _list(engines),
    ]
    return "\n\n".join(parts) + "\n"


def _section(measurement: Measurement) -> str:
    rows = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
    rows += ["| " + " | ".join(_row(measurement, side)) + " |" for side in measurement.sides]
    settings = "\n".join(f"- {line}" for line in measurement.settings)
    checked = "\n".join(f"- {side.name}: {'; '.join(_checked(measurement, side))}" for side in measurement.sides)
    return "\n\n".join(
        [
            f"## {measurement.key}: {measurement.title}",
            f"**{_verdict(measurement)}**",
            f"{measurement.unit}:",
            "\n".join(rows),
            settings,
            f"Checked after every round:\n{checked}",
        ]
    )


def _row(measurement: Measurement, side: Side) -> list[str]:
    rounds = measurement.rounds[side.name]
    rates = sorted(round_.per_second for round_ in rounds)
    speeds = [f"{rate:,.0f}" for rate in (rates[0], median(rates), rates[-1])]
    times = [f"{median(getattr(round_, name) for round_ in rounds):.1f}" for name in ("p50_ms", "p95_ms", "p99_ms")]
    return [side.name, *speeds, *times, _others(rounds)]


def _others(rounds: Sequence[Round]) -> str:
    """Everything that was not the answer asked for, over all rounds."""
    counts: dict[str, int] = {}
    for round_ in rounds:
        for status, number in round_.others.items():
            counts[str(status)] = counts.get(str(status), 0) + number
        if round_.broken:
            counts["broken"] = counts.get("broken", 0) + round_.broken
    return ", ".join(f"{number} × {what}" for what, number in counts.items()) or "none"


def _checked(measurement: Measurement, side: Side) -> list[str]:
    return measurement.rounds[side.name][-1].checked


def _verdict(measurement: Measurement) -> str:
    low, high = min(measurement.ratios), max(measurement.ratios)
    return (
        f"RATIO {measurement.ratio:.1f} × (round by round {low:.1f} to {high:.1f}; "
        f"at least {measurement.at_least:g}, aim {measurement.aim:g})"
    )


def _list(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())
