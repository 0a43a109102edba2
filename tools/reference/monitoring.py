"""Every metric, every alarm in one table, and the runbook, which says what to do."""

from typing import get_args

from onsale.maintenance.metrics_reference import PREFIXES, MetricEntry, catalogue
from shared.alarms import ALARMS, Group
from tools.reference.markdown import Section, code, page

METRICS = """Every process answers `GET /metrics` on its internal listener, in the text format of Prometheus or in
OpenMetrics, as `Accept` asks; the public listener answers 404. `onsale up` lists its processes in
`<data directory>/prometheus-targets.json`, which `deploy/prometheus/prometheus.yml` reads. In one process all services
share one registry, so it is one target.

Every series whose labels have a closed set of values stands at 0 from the start: an alert sees the first event. Series
with `event_id` start when the event's waiting room or stock does, those of `onsale_http_request_seconds` with the first
request. Seconds and bytes are what the names say."""
ALARMS_TEXT = """An alarm fires when its expression has been true for the time that stands there; its name leads to
what to look at and what to do. `onsale deploy-config` writes the same as rules for Prometheus
([monitoring](../operate/monitoring.md))."""
RUNBOOK_HEAD = """# Runbook

What each alarm means and what to do. Written by `make api-documents` from `shared/alarms.py`, as are the rules for
Prometheus in `deploy/prometheus`; a test compares. **critical** calls the pager, **warning** goes to the chat, **info**
into a mail once a day. [Metrics](../reference/metrics.md) explains the metrics, `onsale doctor` checks a suite.

Lowering the admission rate is the first aid for nearly everything: fans keep their places, and those who are inside get
through. `onsale room set EVENT_ID --rate 50`, later back.
"""


def metrics_page() -> str:
    """docs/reference/metrics.md"""
    entries = catalogue()
    return page("Metrics", METRICS, (
        Section("Of every service" if prefix == "onsale" else prefix.capitalize(),
                ("metric", "type", "labels", "what it says", "alarms"),
                [_row(entry) for entry in entries if entry.name.startswith(prefix)])
        for prefix in PREFIXES
    ))  # fmt: skip


def _row(entry: MetricEntry) -> tuple[str, ...]:
    labels = (f"{code(name)}{': ' if values else ''}{', '.join(values)}" for name, values in entry.labels.items())
    return code(entry.name), entry.kind, "; ".join(labels), entry.meaning, ", ".join(map(_entry, entry.alarms))


def _entry(alarm: str) -> str:
    """A link to the runbook."""
    return f"[{alarm}](../operate/runbook.md#{alarm.lower()})"


def alarms_page() -> str:
    """docs/reference/alarms.md"""
    return page("Alarms", ALARMS_TEXT, (
        Section(group.capitalize(), ("alarm", "severity", "after", "what it means", "expression"), [
            (_entry(alarm.name), alarm.severity, f"{alarm.for_s} s", alarm.meaning, code(" ".join(alarm.expr.split())))
            for alarm in ALARMS if alarm.group == group
        ]) for group in get_args(Group)
    ))  # fmt: skip


def runbook() -> str:
    """docs/operate/runbook.md: a heading for each alarm."""
    sections = [
        f"## {alarm.name}\n\n**{alarm.severity}**, after {alarm.for_s} s. {alarm.meaning}\n\n"
        f"- Look at: {alarm.check_first}\n- Do: {alarm.do}\n\n```promql\n{alarm.expr}\n```\n"
        for alarm in ALARMS
    ]
    return "\n".join((RUNBOOK_HEAD, *sections))
