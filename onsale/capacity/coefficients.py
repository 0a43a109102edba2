"""The coefficients of `onsale plan`: figures of `bench/`, defaults of settings, and assumptions, each with its source.

They are kept in `coefficients.yaml`; `python -m bench.scale.coefficients` updates the measured ones.
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
    """One figure. `source` is (measurement, row, column) in `bench/results` for a measured one, the name for a setting,
    the reason for others.
    """

    name: str
    value: float
    unit: str
    kind: Kind
    source: str | tuple[str, str, str]


@dataclass(frozen=True)
class MeasurementSource:
    """When and where a measurement was made."""

    date: str
    machine: str


@dataclass(frozen=True)
class Coefficients:
    """All coefficients by name, and the measurements by theirs."""

    each: dict[str, Coefficient]
    measurements: dict[str, MeasurementSource]

    def __getitem__(self, name: str) -> float:
        return self.each[name].value

    def __iter__(self) -> Iterator[Coefficient]:
        return iter(self.each.values())

    def costs_of(self, service: str, unit: str = "µs") -> dict[str, float]:
        """The cost of each operation for a service: `join.gateway` is the gateway's part of a join."""
        named = ((one.name.partition("."), one) for one in self if one.unit == unit)
        return {operation: one.value for (operation, _, of), one in named if of == service}


def parse(text: str) -> Coefficients:
    """Reads the text of `coefficients.yaml`. Raises `KeyError` or `TypeError` when it is malformed."""
    document: dict[str, Any] = yaml.safe_load(text)
    each = {name: Coefficient(name, **_fields(fields)) for name, fields in document["coefficients"].items()}
    return Coefficients(each, {name: MeasurementSource(**fields) for name, fields in document["measurements"].items()})


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    source = fields["source"]
    return {**fields, "value": float(fields["value"]), "source": tuple(source) if isinstance(source, list) else source}


@cache
def coefficients() -> Coefficients:
    """The coefficients of this version."""
    return parse(PATH.read_text())
