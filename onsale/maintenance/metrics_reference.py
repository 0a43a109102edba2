"""`onsale metrics`: every metric with its labels, as a table or as docs/reference/metrics.md.

`make api-documents` writes that page; a test fails when it differs from the code.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase
from rich.table import Table

from onsale.cli.context import out
from shared.alarms import ALARMS
from shared.runtime.metrics import LABEL_VALUES
from shared.web.routes import SERVICES

PREFIXES = ("onsale", *SERVICES)
HEAD = """# Metrics

Written by `make api-documents` from the code; a test compares. Every process answers `GET /metrics` on its internal
listener, in the text format of Prometheus or in OpenMetrics, as `Accept` asks; the public listener answers 404.
`onsale up` lists its processes in `<data directory>/prometheus-targets.json`, which `deploy/prometheus/prometheus.yml`
reads. In one process all services share one registry, so it is one target.

Every series whose labels have a closed set of values stands at 0 from the start: an alert sees the first event. Series
with `event_id` start when the event's waiting room or stock does, those of `onsale_http_request_seconds` with the first
request. Seconds and bytes are what the names say.
"""


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """One metric: `labels` by name with their values; none where the set is open. `alarms` that use it."""

    name: str
    kind: str
    meaning: str
    labels: dict[str, tuple[str, ...]]
    alarms: tuple[str, ...]


def catalogue() -> list[MetricEntry]:
    """Every metric of the six services, by name."""
    for service in SERVICES:
        importlib.import_module(f"services.{service}.app")
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


def metrics_page() -> str:
    """docs/reference/metrics.md"""
    entries, parts = catalogue(), [HEAD]
    for prefix in PREFIXES:
        parts.append(f"## {'Of every service' if prefix == 'onsale' else prefix.capitalize()}\n")
        parts.append("| metric | type | labels | what it says | alarms |\n|---|---|---|---|---|")
        parts += [_row(entry) for entry in entries if entry.name.startswith(prefix)]
        parts.append("")
    return "\n".join(parts)


def _row(entry: MetricEntry) -> str:
    labels = "; ".join(
        f"`{label}`" + (f": {', '.join(values)}" if values else "") for label, values in entry.labels.items()
    )
    alarms = ", ".join(f"[{name}](../operate/runbook.md#{name.lower()})" for name in entry.alarms)
    return f"| `{entry.name}` | {entry.kind} | {labels} | {entry.meaning} | {alarms} |"


def metrics() -> None:
    """List every metric: its type, labels and meaning, and the alarms that use it."""
    table = Table("metric", "type", "labels", "what it says")
    for entry in catalogue():
        table.add_row(entry.name, entry.kind, ", ".join(entry.labels), entry.meaning)
    out.print(table)
