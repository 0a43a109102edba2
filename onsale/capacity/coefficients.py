"""What the arithmetic counts with: figures of `bench/`, defaults of settings, and assumptions, each with its source.

All of them stand in `coefficients.yaml`; `python -m bench.scale.coefficients` takes those that were measured anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

PATH = Path(__file__).with_name("coefficients.yaml")
Kind = Literal["measured", "setting", "derived", "assumed"]


@dataclass(frozen=True)
class Coefficient:
    """One figure. `source` says where it is from: of a measured one (measurement, row, column) in its table of results,
    of a setting its name, of others the reason.
    """

    name: str
    value: float
    unit: str
    kind: Kind
    source: str | tuple[str, str, str]


@dataclass(frozen=True)
class Measured:
    """When and where a measurement was made."""

    date: str
    machine: str


@dataclass(frozen=True)
class Coefficients:
    """All of them by name; `measurements` by theirs."""

    each: dict[str, Coefficient]
    measurements: dict[str, Measured]

    def __getitem__(self, name: str) -> float:
        return self.each[name].value

    def __iter__(self) -> Iterator[Coefficient]:
        return iter(self.each.values())

    def of(self, service: str, unit: str = "µs") -> dict[str, float]:
        """What each operation costs a service: `join.gateway` is the gateway's part of a join."""
        named = ((one.name.partition("."), one) for one in self if one.unit == unit)
        return {operation: one.value for (operation, _, of), one in named if of == service}


def parsed(text: str) -> Coefficients:
    """The file's text. Raises `KeyError` or `TypeError` for what is not of its form."""
    told: dict[str, Any] = yaml.safe_load(text)
    each = {name: Coefficient(name, **_fields(fields)) for name, fields in told["coefficients"].items()}
    return Coefficients(each, {name: Measured(**fields) for name, fields in told["measurements"].items()})


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    source = fields["source"]
    return {**fields, "value": float(fields["value"]), "source": tuple(source) if isinstance(source, list) else source}


@cache
def coefficients() -> Coefficients:
    """Those that came with this version."""
    return parsed(PATH.read_text())
