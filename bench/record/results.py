"""Saves the result of each measurement in a file of its own, so that repeating one leaves the others unchanged.

`bench/RESULTS.md` is written from these files, all of them, in the order of `python -m bench --help`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from bench.harness.measurement import Claim, Finding, Measurement
from bench.record import report
from bench.record.digest import digest
from bench.record.page_blocks import Block

SIDE_BY_SIDE = Block("side by side", "`make bench`")
HEADINGS = ("| what | Onsale | compared with | ratio | target |", "|---|---:|---:|---:|---:|")


@dataclass(frozen=True)
class Result:
    """The saved result of a measurement: its summary lines, its section, when, how and where it was measured, and the
    digest of the code.
    """

    claims: list[Claim]
    section: str
    date: str
    how: str
    machine: dict[str, str]
    engines: dict[str, str]
    code: str = ""

    @staticmethod
    def of(
        measurement: Measurement | Finding, *, date: str, how: str, machine: dict[str, str], engines: dict[str, str],
        code: str,
    ) -> "Result":  # fmt: skip
        return Result(
            report.claims(measurement),
            report.section(measurement),
            date=date,
            how=how,
            machine=machine,
            engines=engines,
            code=code,
        )


def save(folder: Path, name: str, result: Result) -> None:
    """Writes the result over the earlier one."""
    folder.mkdir(exist_ok=True)
    text = orjson.dumps(asdict(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (folder / f"{name}.json").write_bytes(text)


def saved(folder: Path, names: Iterable[str]) -> list[Result]:
    """The saved results of these measurements, in this order."""
    paths = [folder / f"{name}.json" for name in names]
    return [read(path) for path in paths if path.exists()]


def read(path: Path) -> Result:
    """Reads a saved result."""
    fields = orjson.loads(path.read_bytes())
    return Result(claims=[Claim(**claim) for claim in fields.pop("claims")], **fields)


def stale(folder: Path) -> dict[str, str]:
    """Records that are not of the present code, and since when they stand, by name."""
    kept = {path.stem: orjson.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))}
    old = {name: fields for name, fields in kept.items() if fields.get("code") != digest(name)}
    return {name: fields.get("date", "an unknown day") for name, fields in old.items()}


def page_with(text: str, results: list[Result]) -> str:
    """The page of benchmarks with the claims of these results in its table."""
    rows = report.summary(claim for result in results for claim in result.claims).splitlines()[2:]
    return SIDE_BY_SIDE.replaced(text, "\n".join([*HEADINGS, *rows]))


def document(results: list[Result]) -> str:
    """The whole of `RESULTS.md`."""
    latest = max(results, key=lambda result: result.date)
    parts = [
        "# Measured, side by side",
        "Both sides of a comparison ran in the same minutes on the same machine and the same engines, taking turns "
        "round by round; only the side whose turn it was ran. Read the ratios: the load generator shares the cores.",
        "## In short",
        report.summary(claim for result in results for claim in result.claims),
        *(f"{result.section}\n\n{_provenance(result, latest)}" for result in results),
        "## Machine and versions",
        _list(latest.machine),
        "## Engines, the same for both sides",
        _list(latest.engines),
    ]
    return "\n\n".join(parts) + "\n"


def _provenance(result: Result, latest: Result) -> str:
    """The command and date, and what differs from the latest machine and versions."""
    other = [
        f"{name} {value}"
        for name, value in (result.machine | result.engines).items()
        if (latest.machine | latest.engines).get(name) != value and name != "Disk"
    ]
    return f"`{result.how}` on {result.date}" + (f", with {', '.join(other)}." if other else ".")


def _list(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())
