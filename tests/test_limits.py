"""docs/limits.md says what the code does: every default it names, and every setting of the ledger."""

import importlib
import re
from pathlib import Path

from shared.postgres.settings import PostgresSettings
from shared.runtime.settings import ServiceSettings
from shared.web.routes import SERVICES

PAGE = Path(__file__).parents[1] / "docs" / "limits.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.M)


def defaults() -> dict[str, set[float]]:
    """Of every number that can be set, in whichever service."""
    found: dict[str, set[float]] = {}
    for service in SERVICES:
        rooms = vars(importlib.import_module(f"services.{service}.settings")).values()
        for kind in (room for room in rooms if isinstance(room, type) and issubclass(room, ServiceSettings)):
            for name, field in kind.model_fields.items():
                if isinstance(field.default, int | float):
                    found.setdefault(name, set()).add(float(field.default))
    return found


def test_the_page_of_limits_says_what_the_code_has() -> None:
    told, known = ROW.findall(PAGE.read_text()), defaults()
    assert len(told) > 50
    for name, default in told:
        assert float(default) in known.get(name, set()), f"{name} is {known.get(name)}, docs/limits.md says {default}"


def test_every_limit_of_the_ledger_has_its_reason() -> None:
    told = {name for name, _ in ROW.findall(PAGE.read_text())}
    assert PostgresSettings.model_fields.keys() - {"postgres_url"} <= told
