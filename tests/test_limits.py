"""docs/reference/limits.md names the defaults of the code, and every setting of PostgreSQL."""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from shared.postgres.settings import PostgresSettings
from shared.process.settings import ServiceSettings
from shared.routes import SERVICES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "limits.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.M)


def defaults() -> dict[str, set[float]]:
    """The defaults of every numeric setting and tuning, from all services."""
    values: dict[str, set[float]] = {}
    for service in SERVICES:
        for name, default in tuning_defaults(service):
            values.setdefault(name, set()).add(default)
        members = vars(importlib.import_module(f"services.{service}.settings")).values()
        for kind in (each for each in members if isinstance(each, type) and issubclass(each, ServiceSettings)):
            for name, field in kind.model_fields.items():
                if isinstance(field.default, int | float):
                    values.setdefault(name, set()).add(float(field.default))
    return values


def tuning_defaults(service: str) -> Iterator[tuple[str, float]]:
    """The times and sizes of this service that are no settings."""
    if importlib.util.find_spec(f"services.{service}.tuning"):
        tuning = importlib.import_module(f"services.{service}.tuning").Tuning
        for field in fields(tuning):
            if isinstance(field.default, int | float):
                yield field.name, float(field.default)


def test_every_default_in_the_limits_page_is_that_of_the_code() -> None:
    documented, known = ROW.findall(PAGE.read_text()), defaults()
    assert len(documented) > 50
    for name, default in documented:
        assert float(default) in known.get(name, set()), f"{name} is {known.get(name)}, the page says {default}"


def test_every_setting_of_postgresql_stands_in_the_limits_page() -> None:
    documented = {name for name, _ in ROW.findall(PAGE.read_text())}
    assert PostgresSettings.model_fields.keys() - {"postgres_url"} <= documented
