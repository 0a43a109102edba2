"""`onsale metrics`: every metric with its labels and the alarms that use it."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase
from rich.table import Table

from onsale.cli.context import out
from shared.alarms import ALARMS
from shared.features import package_of, services
from shared.routes import SERVICES
from shared.runtime.metrics import LABEL_VALUES

PREFIXES = ("onsale", *SERVICES)


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """One metric: `labels` by name with their values; none where the set is open. `alarms` that use it."""

    name: str
    kind: str
    meaning: str
    labels: dict[str, tuple[str, ...]]
    alarms: tuple[str, ...]


def catalogue() -> list[MetricEntry]:
    """Every metric of the installed services and features, by name."""
    from shared.web.parts import parts_of  # with the framework, which other commands do not need

    for service in services():
        importlib.import_module(f"{package_of(service)}.app")
        parts_of(service)
    return sorted(_entries(), key=lambda entry: entry.name)


def _entries() -> Iterator[MetricEntry]:
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001 - the registry lists samples, not metrics
        if not isinstance(collector, MetricWrapperBase):
            continue
        family = next(iter(collector.describe()))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith(PREFIXES):
            closed = LABEL_VALUES.get(family.name, {})
            labels = {label: closed.get(label, ()) for label in collector._labelnames}  # noqa: SLF001
            users = tuple(alarm.name for alarm in ALARMS if name in alarm.expr)
            yield MetricEntry(name, family.type, family.documentation, labels, users)


def metrics() -> None:
    """List every metric: its type, labels and meaning, and the alarms that use it."""
    table = Table("metric", "type", "labels", "what it says")
    for entry in catalogue():
        table.add_row(entry.name, entry.kind, ", ".join(entry.labels), entry.meaning)
    out.print(table)
