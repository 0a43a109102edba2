"""`python -m bench.scale.coefficients`: updates the coefficients of `onsale plan`, and docs/operate/capacity.md.

Every saved measurement does this too, so the plan always uses the figures of `RESULTS.md`.
"""

import dataclasses
import io
import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from rich.console import Console

from bench.record.results import Result, read
from onsale.capacity.command import answer_for
from onsale.capacity.sale import PATH, Coefficient, Coefficients, MeasurementSource, parse

HERE = Path(__file__).parents[1]
GUIDE = HERE.parent / "docs" / "operate" / "capacity.md"
PLAN_EXAMPLE = re.compile(r"```\n\$ onsale plan ([^\n]*)\n.*?```", re.DOTALL)


def figure(section: str, row: str, column: str) -> float:
    """A figure of a measurement's table; `row` is how the row begins. Raises `LookupError`."""
    tables = (line[1:].rstrip("|").split("|") for line in section.splitlines() if line.startswith("| "))
    lines = [[cell.strip() for cell in cells] for cells in tables]
    headings = next((cells for cells in lines if column in cells), None)
    wanted = row.split(" | ")
    found = next((cells for cells in lines if cells[: len(wanted)] == wanted), None)
    if headings is None or found is None:
        raise LookupError(f"no figure {column} of {row}")
    at = headings.index(column)
    return float(found[at].replace(",", "") or 0) if at < len(found) else 0.0


def with_results(known: Coefficients, results: Mapping[str, Result]) -> Coefficients:
    """The coefficients with the figures of these results. Raises `LookupError` when one is missing."""

    def updated(one: Coefficient) -> Coefficient:
        if isinstance(one.source, str) or one.source[0] not in results:
            return one
        measurement, row, column = one.source
        return dataclasses.replace(one, value=figure(results[measurement].section, row, column))

    measured = {
        name: MeasurementSource(date=result.date, machine=result.machine["Processor"])
        for name, result in results.items()
        if name in known.measurements
    }
    return Coefficients({one.name: updated(one) for one in known}, known.measurements | measured)


def as_yaml(text: str, known: Coefficients) -> str:
    """The text of the file with these figures; its comments stay."""
    comments = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    measured = [_line(name, dataclasses.asdict(one)) for name, one in known.measurements.items()]
    each = [_line(one.name, _fields(one)) for one in known]
    return comments + "\n".join(["measurements:", *measured, "coefficients:", *each]) + "\n"


def _fields(one: Coefficient) -> dict[str, object]:
    source = list(one.source) if isinstance(one.source, tuple) else one.source
    value = int(one.value) if one.value == int(one.value) else one.value
    return {"value": value, "unit": one.unit, "kind": one.kind, "source": source}


def _line(name: str, fields: Mapping[str, object]) -> str:
    text = yaml.safe_dump(dict(fields), default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return f"  {name}: {text.strip()}"


def updated_guide(text: str, known: Coefficients) -> str:
    """The page with the plans that these figures give."""

    def example(match: re.Match[str]) -> str:
        screen = Console(file=io.StringIO(), width=200, highlight=False)
        answer_for(screen, match[1].split(), known)
        assert isinstance(screen.file, io.StringIO)
        lines = (line.rstrip() for line in screen.file.getvalue().strip().splitlines())
        return f"```\n$ onsale plan {match[1]}\n" + "\n".join(lines) + "\n```"

    return PLAN_EXAMPLE.sub(example, text)


def update_files(results: Path = HERE / "results") -> None:
    """Writes the coefficients and the page."""
    text = PATH.read_text()
    known = parse(text)
    kept = {name: read(results / f"{name}.json") for name in known.measurements if (results / f"{name}.json").exists()}
    known = with_results(known, kept)
    PATH.write_text(as_yaml(text, known))
    GUIDE.write_text(updated_guide(GUIDE.read_text(), known))


if __name__ == "__main__":
    update_files()
