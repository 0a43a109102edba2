"""What each measurement came to, kept in a file of its own, so that measuring one anew leaves the others standing.

`bench/RESULTS.md` is written from these files, all of them, in the order of `python -m bench --help`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from bench.harness import report
from bench.harness.measurement import Claim, Finding, Measurement


@dataclass(frozen=True)
class Result:
    """One measurement as it was written down: its lines of the summary, its section, and when, how and where."""

    claims: list[Claim]
    section: str
    date: str
    how: str
    machine: dict[str, str]
    engines: dict[str, str]

    @staticmethod
    def of(
        measurement: Measurement | Finding, *, date: str, how: str, machine: dict[str, str], engines: dict[str, str]
    ) -> "Result":
        return Result(report.claims(measurement), report.section(measurement), date, how, machine, engines)


def keep(folder: Path, name: str, result: Result) -> None:
    """Writes it down in place of what stood there."""
    folder.mkdir(exist_ok=True)
    text = orjson.dumps(asdict(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (folder / f"{name}.json").write_bytes(text)


def kept(folder: Path, names: Iterable[str]) -> list[Result]:
    """Those that were ever measured, in this order."""
    paths = [folder / f"{name}.json" for name in names]
    return [read(path) for path in paths if path.exists()]


def read(path: Path) -> Result:
    """One as it was written down."""
    fields = orjson.loads(path.read_bytes())
    return Result(claims=[Claim(**claim) for claim in fields.pop("claims")], **fields)


def document(results: list[Result]) -> str:
    """The whole of `RESULTS.md`."""
    latest = max(results, key=lambda result: result.date)
    parts = [
        "# Measured, side by side",
        "Both sides of a comparison ran in the same minutes on the same machine and the same engines, taking turns "
        "round by round; only the side whose turn it was ran. Read the ratios: the load generator shares the cores.",
        "## In short",
        report.summary(claim for result in results for claim in result.claims),
        *(f"{result.section}\n\n{_how(result, latest)}" for result in results),
        "## Machine and versions",
        _list(latest.machine),
        "## Engines, the same for both sides",
        _list(latest.engines),
    ]
    return "\n\n".join(parts) + "\n"


def _how(result: Result, latest: Result) -> str:
    """How and when, and what was another machine or version then."""
    other = [
        f"{name} {value}"
        for name, value in (result.machine | result.engines).items()
        if (latest.machine | latest.engines).get(name) != value and name != "Disk"
    ]
    return f"`{result.how}` on {result.date}" + (f", with {', '.join(other)}." if other else ".")


def _list(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())
