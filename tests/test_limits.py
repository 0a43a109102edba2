"""docs/reference/limits.md names the defaults of the code, and every wait for PostgreSQL."""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from features.codes.gateway import WRONG_CODES_PER_S
from features.mail.orders.dispatcher import MAILS_PER_ADDRESS
from features.papers.orders import api as papers
from features.webhooks.orders.dispatcher import TIMEOUT_S as WEBHOOK_TIMEOUT_S
from services.orders.tuning import DEFAULTS as ORDERS
from shared.features import package_of
from shared.postgres.settings import WAITS
from shared.process.settings import ServiceSettings
from shared.routes import SERVICES
from shared.security.limits import ADDRESS_AT_ONCE, ADDRESS_PER_MINUTE
from shared.web.app import BODY_MAX_BYTES
from shared.web.listener import INTERNAL_BODY_MAX_BYTES
from shared.web.parts import with_settings_of_parts

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "limits.md"
EVERYWHERE = {
    "body_max_bytes": BODY_MAX_BYTES, "internal_body_max_bytes": INTERNAL_BODY_MAX_BYTES,
    "wrong_codes_address_at_once": ADDRESS_AT_ONCE, "wrong_codes_address_per_minute": ADDRESS_PER_MINUTE,
    "wrong_codes_per_s": WRONG_CODES_PER_S, "webhook_timeout_s": WEBHOOK_TIMEOUT_S, "pdf_workers": papers.PDF_WORKERS,
    "prints_waiting_max": papers.PRINTS_WAITING_MAX, "prints_per_minute": papers.PRINTS_PER_MINUTE,
    "prints_burst": papers.PRINTS_BURST, "mails_per_address": MAILS_PER_ADDRESS, **asdict(WAITS),
}  # fmt: skip
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.M)


def defaults() -> dict[str, set[float]]:
    """The defaults of every numeric setting and tuning, from all services."""
    values: dict[str, set[float]] = {name: {float(limit)} for name, limit in EVERYWHERE.items()}
    for service in SERVICES:
        for name, default in tuning_defaults(service):
            values.setdefault(name, set()).add(default)
        own: type[ServiceSettings] = importlib.import_module(f"{package_of(service)}.settings").Settings
        for name, field in with_settings_of_parts(own, service).model_fields.items():
            if isinstance(field.default, int | float):
                values.setdefault(name, set()).add(float(field.default))
    return values


def tuning_defaults(service: str) -> Iterator[tuple[str, float]]:
    """The times and sizes of this service that are no settings."""
    if importlib.util.find_spec(f"{package_of(service)}.tuning"):
        tuning = importlib.import_module(f"{package_of(service)}.tuning").Tuning
        for field in fields(tuning):
            if isinstance(field.default, int | float):
                yield field.name, float(field.default)


def test_every_default_in_the_limits_page_is_that_of_the_code() -> None:
    documented, known = ROW.findall(PAGE.read_text()), defaults()
    assert len(documented) > 50
    for name, default in documented:
        assert float(default) in known.get(name, set()), f"{name} is {known.get(name)}, the page says {default}"


def test_every_wait_for_postgresql_stands_in_the_limits_page_and_the_inner_ones_end_first() -> None:
    """Or an outer one would hide the cause."""
    documented = {name for name, _ in ROW.findall(PAGE.read_text())}
    assert {"postgres_pool_max", *asdict(WAITS)} <= documented
    assert ORDERS.lock_timeout_ms <= WAITS.lock_timeout_ms <= WAITS.statement_timeout_ms
    assert WAITS.statement_timeout_ms < WAITS.answer_timeout_s * 1000
