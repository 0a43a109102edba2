"""The files for Prometheus and Alertmanager, from the table of alarms in `shared/alarms.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from shared.alarms import ALARMS, Alarm, Severity

SCRAPE_S = 5
TARGETS = "../../.onsale/prometheus-targets.json"
RUNBOOK = "docs/operate/runbook.md"
ROUTES: dict[Severity, str] = {"critical": "pager", "warning": "chat", "info": "daily-mail"}
WRITTEN_BY = "# Written by `onsale deploy-config` from shared/alarms.py; a test compares.\n"


@dataclass(frozen=True, slots=True)
class Receivers:
    """Where alarms go: webhooks for the pager and the chat, an address and a mail server for the daily mail. An empty
    one keeps its alarms in Alertmanager's own page.
    """

    pager_url: str = ""
    chat_url: str = ""
    mail_to: str = ""
    smtp: str = "localhost:25"


def write_monitoring_files(folder: Path, receivers: Receivers = Receivers()) -> None:
    """Writes `alerts.yml`, `prometheus.yml` and `alertmanager.yml` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alerts.yml").write_text(alerts_yml())
    (folder / "prometheus.yml").write_text(prometheus_yml())
    (folder / "alertmanager.yml").write_text(alertmanager_yml(receivers))


def alerts_yml(alarms: Sequence[Alarm] = ALARMS) -> str:
    """Prometheus' rules: one group for each part of the suite."""
    groups = [
        {"name": f"onsale-{name}", "interval": f"{SCRAPE_S}s", "rules": [_rule(alarm) for alarm in members]}
        for name, members in groupby(alarms, key=lambda alarm: alarm.group)
    ]
    return _yaml({"groups": groups})


def _rule(alarm: Alarm) -> dict[str, Any]:
    return {
        "alert": alarm.name, "expr": alarm.expr, **({"for": f"{alarm.for_s}s"} if alarm.for_s else {}),
        "labels": {"severity": alarm.severity},
        "annotations": {"summary": alarm.summary, "runbook": f"{RUNBOOK}#{alarm.name.lower()}"},
    }  # fmt: skip


def prometheus_yml() -> str:
    """Scrapes the processes that the suite lists in its data directory, every 5 s."""
    return _yaml({
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{
            "job_name": "onsale",
            "file_sd_configs": [{"files": [TARGETS], "refresh_interval": f"{SCRAPE_S}s"}],
        }],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
    })  # fmt: skip


def alertmanager_yml(receivers: Receivers = Receivers()) -> str:
    """Routes by severity; a warning is silent while the critical alarm of the same event or service fires."""
    routes = [
        {"receiver": name, "matchers": [f'severity="{severity}"'],
         **({"group_interval": "24h", "repeat_interval": "24h"} if severity == "info" else {})}
        for severity, name in ROUTES.items()
    ]  # fmt: skip

    def hook(url: str) -> dict[str, Any]:
        return {"webhook_configs": [{"url": url, "send_resolved": True}]} if url else {}

    mail = {"email_configs": [{"to": receivers.mail_to, "from": receivers.mail_to, "smarthost": receivers.smtp,
                               "send_resolved": True}]} if receivers.mail_to else {}  # fmt: skip
    return _yaml({
        "route": {"receiver": "chat", "group_by": ["alertname", "event_id"], "group_wait": "5s",
                  "group_interval": "30s", "repeat_interval": "1h", "routes": routes},
        "receivers": [{"name": "pager", **hook(receivers.pager_url)}, {"name": "chat", **hook(receivers.chat_url)},
                      {"name": "daily-mail", **mail}],
        "inhibit_rules": [
            {"source_matchers": [f'alertname="{worse}"'], "target_matchers": [f'alertname="{milder}"'],
             "equal": ["event_id", "service"]}
            for worse, milder in PAIRS
        ],
    })  # fmt: skip


PAIRS = (
    ("QueueVeryLong", "QueueLong"), ("ReservationsFailVeryOften", "ReservationsFailOften"),
    ("FallbackVeryOften", "FallbackOften"), ("NewsVeryOld", "NewsOld"), ("RedisMemoryVeryHigh", "RedisMemoryHigh"),
)  # fmt: skip


def _yaml(document: dict[str, Any]) -> str:
    return WRITTEN_BY + yaml.safe_dump(document, sort_keys=False, width=1_000, allow_unicode=True)
