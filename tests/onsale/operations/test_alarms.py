"""The table of alarms: its files are those in the repository, its metrics and commands exist, and every alarm fires
from its fault and ends after it, as Prometheus' own rule engine sees it.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from onsale.cli.app import app
from onsale.deploy import monitoring_files
from onsale.deploy.monitoring_files import Receivers, alertmanager_yml, alerts_yml, prometheus_yml
from onsale.maintenance import metrics_reference
from shared.alarms import ALARMS
from tests.support.programs import need
from tools.reference.monitoring import runbook

ROOT = Path(__file__).parents[3]
STEP_S, BEFORE, FAULT, AFTER = 5, 24, 60, 260  # steps; after it, longer than the longest window


@dataclass(frozen=True)
class Gauge:
    """A series' value in good times and during the fault."""

    good: float
    bad: float

    def values(self) -> list[float]:
        return [self.good] * BEFORE + [self.bad] * FAULT + [self.good] * AFTER


@dataclass(frozen=True)
class Counter:
    """A counter's increase in each step in good times and during the fault."""

    good: float
    bad: float

    def values(self) -> list[float]:
        total, values = 0.0, []
        for step in (self.good,) * BEFORE + (self.bad,) * FAULT + (self.good,) * AFTER:
            total += step
            values.append(total)
        return values


Series = dict[str, Gauge | Counter]
EVENT = 'event_id="arena"'
HOLDS: Series = {
    'inventory_holds_total{outcome="held"}': Counter(100, 92),
    'inventory_holds_total{outcome="seats-taken"}': Counter(0, 0),
}
CHECKOUTS: Series = {'orders_checkout_seconds_count{path="background"}': Counter(100, 92)}
ORDER_CALLS: Series = {'onsale_http_request_seconds_count{service="orders",route="/orders",method="POST",status="202"}':
               Counter(1000, 1000)}  # fmt: skip
FAULTS: dict[str, Series] = {
    "QueueVeryLong": {f'queue_waiting{{{EVENT},instance="a"}}': Gauge(900_000, 1_100_000)},
    "QueueLong": {f'queue_waiting{{{EVENT},instance="a"}}': Gauge(400_000, 600_000)},
    "WaitLong": {f"queue_wait_seconds_sum{{{EVENT}}}": Counter(6_000, 60_000),
                 f"queue_wait_seconds_count{{{EVENT}}}": Counter(20, 20)},
    "LineStandsStill": {f"queue_waiting{{{EVENT}}}": Gauge(500, 500), f"queue_called_total{{{EVENT}}}": Counter(50, 0),
                        f"queue_room_open{{{EVENT}}}": Gauge(1, 1)},
    "PromisesBroken": {'gateway_estimate_ratio_bucket{estimate="kept",le="1.5"}': Counter(10, 2),
                       'gateway_estimate_ratio_count{estimate="kept"}': Counter(10, 10)},
    "Oversold": {'inventory_oversell_total{status="waiting"}': Counter(0, 1),
                 "inventory_oversell_waiting": Gauge(0, 1)},
    "ReservationsFailVeryOften": HOLDS | {'inventory_holds_total{outcome="unavailable"}': Counter(0, 20)},
    "ReservationsFailOften": HOLDS | {'inventory_holds_total{outcome="overloaded"}': Counter(1, 7)},
    "HoldsExpire": {'inventory_holds_ended_total{reason="deadline"}': Counter(1, 30),
                    'orders_orders_total{status="confirmed"}': Counter(10, 1)},
    "HoldsEndLate": {'inventory_hold_ended_late_seconds_bucket{le="15"}': Counter(10, 1),
                     'inventory_hold_ended_late_seconds_bucket{le="60"}': Counter(10, 10),
                     'inventory_hold_ended_late_seconds_bucket{le="+Inf"}': Counter(10, 10)},
    "PaidAfterRelease": {'orders_orders_total{status="late_paid"}': Counter(0, 1)},
    "Drift": {f"inventory_drift_standing{{{EVENT}}}": Gauge(0, 3)},
    "StepsFail": {'orders_steps_total{step="charge"}': Counter(100, 80),
                  'orders_step_failures_total{step="charge"}': Counter(0, 20)},
    "OrdersWait": {"orders_due": Gauge(3, 150)},
    "WorkersLate": {"orders_workers_in_time": Gauge(1, 0)},
    "FallbackVeryOften": CHECKOUTS | {'orders_checkout_seconds_count{path="late"}': Counter(0, 20)},
    "FallbackOften": CHECKOUTS | {'orders_checkout_seconds_count{path="late"}': Counter(1, 7)},
    "OrdersNeedAPerson": {'orders_reviews_total{reason="mismatch"}': Counter(0, 1)},
    "MailsGivenUp": {'orders_mails_total{kind="confirmed",outcome="rejected"}': Counter(0, 5)},
    "NewsVeryOld": {'notifier_event_age_seconds_bucket{le="5"}': Counter(10, 5),
                    'notifier_event_age_seconds_bucket{le="15"}': Counter(10, 10),
                    'notifier_event_age_seconds_bucket{le="+Inf"}': Counter(10, 10)},
    "NewsOld": {'notifier_event_age_seconds_bucket{le="2"}': Counter(10, 5),
                'notifier_event_age_seconds_bucket{le="5"}': Counter(10, 10),
                'notifier_event_age_seconds_bucket{le="+Inf"}': Counter(10, 10)},
    "FeedsDegraded": {"notifier_feeds_degraded": Gauge(0, 2)},
    "RedisMemoryVeryHigh": {'onsale_redis_memory_bytes{node="a"}': Gauge(50, 85),
                            'onsale_redis_memory_limit_bytes{node="a"}': Gauge(100, 100)},
    "RedisMemoryHigh": {'onsale_redis_memory_bytes{node="a"}': Gauge(50, 70),
                        'onsale_redis_memory_limit_bytes{node="a"}': Gauge(100, 100)},
    "PoolExhausted": {'onsale_pool_in_use{service="orders",pool="postgresql"}': Gauge(3, 10),
                      'onsale_pool_size{service="orders",pool="postgresql"}': Gauge(10, 10),
                      'onsale_pool_timeouts_total{service="orders",pool="postgresql"}': Counter(0, 0)},
    "LocksWait": {'onsale_database_lock_waiting{service="orders"}': Gauge(1, 30)},
    "ServiceDown": {'up{job="onsale",instance="127.0.0.1:1",process="gateway"}': Gauge(1, 0)},
    "CalledFansRefused": {
        'onsale_http_failures_total{service="orders",route="/orders",method="POST"}': Counter(0, 1),
        'onsale_http_failures_total{service="orders",route="/orders/{reference}",method="GET"}': Counter(1, 1)},
    "CheckoutBudgetBurns": ORDER_CALLS | {
        'onsale_http_failures_total{service="orders",route="/orders",method="POST"}': Counter(0, 20)},
    "LogBehind": {'onsale_event_log_behind_seconds{source="orders"}': Gauge(2, 90)},
    "EventsUnread": {'onsale_events_unread_seconds{source="orders",reader="webhooks"}': Gauge(2, 900)},
}  # fmt: skip


def test_the_files_in_the_repository_are_the_generated_ones() -> None:
    folder = ROOT / "deploy" / "prometheus"
    assert (folder / "alerts.yml").read_text() == alerts_yml()
    assert (folder / "prometheus.yml").read_text() == prometheus_yml()
    assert (folder / "alertmanager.yml").read_text() == alertmanager_yml()


def test_every_metric_of_an_alarm_exists() -> None:
    known = {entry.name for entry in metrics_reference.catalogue()} | {"up"}
    for alarm in ALARMS:
        named = re.findall(r"\b(?:onsale|gateway|queue|inventory|orders|notifier)_[a-z_]+\b", alarm.expr)
        families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} - {"queue_very_long"}
        assert families <= known, alarm.name


def test_every_command_of_the_runbook_exists() -> None:
    commands = {" ".join(found.split()) for found in re.findall(r"`onsale ([a-z-]+(?: [a-z-]+)?)", runbook())}
    assert {"room show", "reconcile now"} <= commands
    for command in commands:
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0, command


def check_rules(folder: Path, name: str, series: dict[str, str], firing_at: dict[int, int]) -> Path:
    """A file for promtool in which the alarm alone is evaluated: how often it fires at these seconds."""
    (folder / f"{name}.yml").write_text(alerts_yml([alarm for alarm in ALARMS if alarm.name == name]))
    checks = [
        {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)', "eval_time": f"{at_s}s",
         "exp_samples": [{"labels": "{}", "value": firing}]}
        for at_s, firing in firing_at.items()
    ]  # fmt: skip
    given = [{"series": name_of, "values": values} for name_of, values in series.items()]
    document = {
        "rule_files": [f"{name}.yml"], "evaluation_interval": f"{STEP_S}s",
        "tests": [{"name": name, "interval": f"{STEP_S}s", "input_series": given, "promql_expr_test": checks}],
    }  # fmt: skip
    file = folder / f"{name}_test.yml"
    file.write_text(yaml.safe_dump(document))
    return file


def promtool(*files: Path) -> None:
    done = subprocess.run([need("promtool"), "test", "rules", *map(str, files)],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_alarm_fires_from_its_fault_and_ends_after_it(tmp_path: Path) -> None:
    assert FAULTS.keys() == {alarm.name for alarm in ALARMS}
    times = {BEFORE * STEP_S - 10: 0, (BEFORE + FAULT) * STEP_S - 10: 1, (BEFORE + FAULT + AFTER) * STEP_S - 10: 0}
    promtool(*(
        check_rules(tmp_path, name, {series: " ".join(f"{value:g}" for value in fault.values())
                                     for series, fault in faults.items()}, times)
        for name, faults in FAULTS.items()
    ))  # fmt: skip


@pytest.mark.parametrize(("values", "firing"), [("0x4 1x30", 1), ("_x4 1x30", 0)])
def test_the_first_oversold_place_is_seen_because_its_series_stood_at_0(
    values: str, firing: int, tmp_path: Path
) -> None:
    promtool(check_rules(tmp_path, "Oversold", {'inventory_oversell_total{status="honoured"}': values}, {60: firing}))


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "pager"), ("warning", "chat"), ("info", "daily-mail")])
def test_alertmanager_routes_each_severity(severity: str, receiver: str, tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(
        alertmanager_yml(Receivers("http://127.0.0.1:1/pager", "http://127.0.0.1:1/chat", "ops@example.org"))
    )
    route = [need("amtool"), "config", "routes", "test", f"--config.file={file}", f"severity={severity}"]
    assert subprocess.run(route, capture_output=True, text=True, check=True).stdout.strip() == receiver


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    monitoring_files.write_monitoring_files(tmp_path)
    check = [need("promtool"), "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
