"""Writes six Grafana boards from a table of panels: `make boards`. For developers; needs `grafana-foundation-sdk`.

A panel's expression never comes back empty on a healthy night: a rate of nothing is 0, and a ratio without a divisor too.
`$event` is a regular expression of event ids, `All` by default.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
EVENT = '{event_id=~"$event"}'
WIDTH, HEIGHT = 8, 8


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` is Grafana's; `help` says what to look at."""

    title: str
    expr: str
    unit: str
    help: str
    legend: str = ""


def rate(counter: str, by: str = "") -> str:
    """Per second over a minute, summed over processes."""
    return f"sum{f' by ({by})' if by else ''} (rate({counter}[1m]))"


def share(part: str, whole: str) -> str:
    """A share over two minutes; 0 where there was nothing."""
    return f"(sum(rate({part}[2m])) / sum(rate({whole}[2m])) >= 0) or vector(0)"


def quantile(q: float, histogram: str, by: str = "") -> str:
    """A quantile over two minutes; 0 where nothing was observed."""
    found = f"histogram_quantile({q}, sum by (le{f', {by}' if by else ''}) (rate({histogram}_bucket[2m])))"
    return f"({found} >= 0) or vector(0)"


BOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "line": ("Line", (
        Panel("Waiting", f"max by (event_id) (queue_waiting{EVENT})", "short", "An upper bound: who gave up is still counted.", "{{event_id}}"),
        Panel("Joins", rate("gateway_joins_total", "outcome"), "reqps", "By outcome. `line-full` and `closed` are refusals.", "{{outcome}}"),
        Panel("Calls", f"sum by (event_id) (rate(queue_called_total{EVENT}[1m]))", "reqps", "Beside the room's rate: fewer mean full slots, stock, or the throttle.", "{{event_id}}"),
        Panel("Wait of those called now", f"(sum by (event_id) (rate(queue_wait_seconds_sum{EVENT}[5m])) / sum by (event_id) (rate(queue_wait_seconds_count{EVENT}[5m])) >= 0) or vector(0)", "s", "Average over five minutes. Alarm WaitLong at 900 s.", "{{event_id}}"),
        Panel("Inside", f"max by (event_id) (queue_active{EVENT})", "short", "Standing calls and open sessions, bounded by max_active.", "{{event_id}}"),
        Panel("Share of the rate let through", f"min by (event_id) (queue_throttle_share{EVENT}) or vector(1)", "percentunit", "Below 1 the overload guard throttles.", "{{event_id}}"),
        Panel("Claims", rate("gateway_claims_total", "outcome"), "reqps", "By outcome.", "{{outcome}}"),
        Panel("Missed calls", f"{rate('queue_missed_total')} / clamp_min({rate('queue_called_total')}, 0.001)", "percentunit", "Of those called: the fans who had left."),
        Panel("Position shown against a recount", f"max by (event_id) (queue_position_error{EVENT}) or vector(0)", "short", "Fans before the sample who left without saying so.", "{{event_id}}"),
        Panel("Waits within 1.5 of the estimate", '((sum(rate(gateway_estimate_ratio_bucket{estimate="kept",le="1.5"}[5m])) / sum(rate(gateway_estimate_ratio_count{estimate="kept"}[5m]))) >= 0) or vector(1)', "percentunit", "Alarm PromisesBroken below 90 %."),
        Panel("Memory of the line", f"max by (event_id) (queue_line_memory_bytes{EVENT}) or vector(0)", "bytes", "The line's keys in Redis.", "{{event_id}}"),
        Panel("Polls", rate("gateway_polls_total", "source"), "reqps", "By where the answer came from.", "{{source}}"),
    )),
    "stock": ("Stock", (
        Panel("Reservations", rate("inventory_holds_total", "outcome"), "reqps", "`seats-taken` and `sold-out` are the fans' luck, `unavailable`, `overloaded` and `failed` are ours.", "{{outcome}}"),
        Panel("Reservations that fail", share('inventory_holds_total{outcome=~"unavailable|overloaded|clocks-apart|failed"}', "inventory_holds_total"), "percentunit", "Alarms at 5 % and 10 %."),
        Panel("Live holds", f"sum by (status) (inventory_holds_pending{EVENT}) or vector(0)", "short", "Waiting for payment, and paying.", "{{status}}"),
        Panel("Oldest hold", f"max by (event_id) (inventory_oldest_hold_seconds{EVENT}) or vector(0)", "s", "Beside hold_ttl_s.", "{{event_id}}"),
        Panel("Holds ended without a sale", rate("inventory_holds_ended_total", "reason"), "reqps", "By reason.", "{{reason}}"),
        Panel("Holds that end unpaid", share('inventory_holds_ended_total{reason=~"deadline|scan"}', "inventory_holds_total"), "percentunit", "Of all reservations. Alarm HoldsExpire looks at those that end."),
        Panel("Ended late, p99", quantile(0.99, "inventory_hold_ended_late_seconds"), "s", "From the deadline to the release. Alarm at 15 s."),
        Panel("Drift that stands", f"max by (event_id) (inventory_drift_standing{EVENT}) or vector(0)", "short", "Redis and database differ; alarm after a minute.", "{{event_id}}"),
        Panel("Drift found", "sum by (source) (increase(inventory_drift_total[5m]))", "short", "By where.", "{{source}}"),
        Panel("Oversold", "sum(inventory_oversell_total) + sum(inventory_oversell_waiting)", "short", "0. Anything else pages."),
        Panel("Rebuilds", "sum(increase(inventory_redis_stock_rebuilds_total[5m]))", "short", "Stock in Redis made anew from the database."),
        Panel("Time of a pass of reconciliation, p99", quantile(0.99, "inventory_reconcile_seconds"), "s", "For one event."),
    )),
    "orders": ("Orders", (
        Panel("Orders by status reached", rate("orders_orders_total", "status"), "reqps", "Confirmed beside pending: what checkout carries.", "{{status}}"),
        Panel("Time to accept an order, p99", quantile(0.99, "orders_checkout_seconds", "path"), "s", "By path: background is usual.", "{{path}}"),
        Panel("Processed in their request", share('orders_checkout_seconds_count{path="late"}', "orders_checkout_seconds_count"), "percentunit", "Alarms at 5 % and 10 %."),
        Panel("Orders due", "max(orders_due)", "short", "Of one process, without a free worker. Alarm above 100."),
        Panel("Oldest due", "max(orders_oldest_due_seconds)", "s", "How long the first of them waits."),
        Panel("Steps", rate("orders_steps_total", "step"), "reqps", "By step.", "{{step}}"),
        Panel("Steps that fail", share("orders_step_failures_total", "orders_steps_total"), "percentunit", "They are tried again. Alarm at 5 %."),
        Panel("Time of a step, p99", quantile(0.99, "orders_step_seconds", "step"), "s", "By step.", "{{step}}"),
        Panel("Payment provider, p99", quantile(0.99, "orders_provider_seconds", "call"), "s", "By call.", "{{call}}"),
        Panel("For a person", "sum by (reason) (increase(orders_reviews_total[15m]))", "short", "Orders that wait for a decision.", "{{reason}}"),
        Panel("Payment webhooks", rate("orders_webhooks_total", "outcome"), "reqps", "By outcome.", "{{outcome}}"),
        Panel("Mails", rate("orders_mails_total", "outcome"), "reqps", "By outcome.", "{{outcome}}"),
    )),
    "streams": ("Streams", (
        Panel("Streams open", "sum by (process, kind) (notifier_streams_open)", "short", "By notifier.", "{{process}} {{kind}}"),
        Panel("Age of the news, p99.9", quantile(0.999, "notifier_event_age_seconds", "kind"), "s", "Alarms at 2 s and 5 s.", "{{kind}}"),
        Panel("Frames written", rate("notifier_frames_written_total", "kind"), "reqps", "Counted for each stream.", "{{kind}}"),
        Panel("Frames skipped", rate("notifier_frames_skipped_total", "kind"), "reqps", "The reader did not read.", "{{kind}}"),
        Panel("Streams ended", rate("notifier_streams_ended_total", "reason"), "reqps", "By reason.", "{{reason}}"),
        Panel("Streams rejected", rate("notifier_streams_rejected_total", "reason"), "reqps", "By reason.", "{{reason}}"),
        Panel("Time of one fan-out, p99", quantile(0.99, "notifier_fan_out_seconds", "kind"), "s", "First to last write of a frame.", "{{kind}}"),
        Panel("Feeds polled", "sum(notifier_feeds_degraded)", "short", "Pub/Sub does not deliver."),
        Panel("Frames that Pub/Sub lost", rate("notifier_frames_missed_total"), "reqps", "Read from the log instead."),
    )),
    "engines": ("Engines and processes", (
        Panel("Processor", 'sum by (process) (rate(process_cpu_seconds_total{job="onsale"}[1m]))', "percentunit", "A Python process uses one core at most.", "{{process}}"),
        Panel("Memory", 'sum by (process) (process_resident_memory_bytes{job="onsale"})', "bytes", "Resident.", "{{process}}"),
        Panel("Open files", 'max by (process) (process_open_fds{job="onsale"} / process_max_fds{job="onsale"})', "percentunit", "Of the limit.", "{{process}}"),
        Panel("Event loop late, p99", quantile(0.99, "onsale_loop_lag_seconds", "process"), "s", "Everything in that process waits so long.", "{{process}}"),
        Panel("Collector's pauses, p99", quantile(0.99, "onsale_gc_pause_seconds", "process"), "s", "Of the garbage collector.", "{{process}}"),
        Panel("Loops that fail", "sum by (loop) (increase(onsale_loop_failures_total[5m])) > 0 or vector(0)", "short", "Background loops that raised.", "{{loop}}"),
        Panel("Connections in use", "max by (service, pool) (onsale_pool_in_use / onsale_pool_size)", "percentunit", "Of each pool. Alarm when none is left.", "{{service}} {{pool}}"),
        Panel("No connection in time", "sum by (service, pool) (increase(onsale_pool_timeouts_total[5m]))", "short", "Callers that got none.", "{{service}} {{pool}}"),
        Panel("Group commits, p99", quantile(0.99, "onsale_batch_seconds", "batch"), "s", "Time of one batch.", "{{batch}}"),
        Panel("Waiting for a lock", "max by (service) (onsale_database_lock_waiting)", "short", "Statements in PostgreSQL.", "{{service}}"),
        Panel("Conflicts", "sum by (service, kind) (increase(onsale_database_conflicts_total[5m]))", "short", "Deadlocks, time limits.", "{{service}} {{kind}}"),
        Panel("Redis' memory", "onsale_redis_memory_bytes", "bytes", "Alarms at 60 % and 80 % of maxmemory.", "{{node}}"),
        Panel("Event log behind", "max by (source) (onsale_event_log_behind_seconds)", "s", "Oldest event that the log has not taken.", "{{source}}"),
        Panel("Clocks", "max by (service, clock) (abs(onsale_clock_skew_seconds))", "s", "How far they are apart.", "{{service}} {{clock}}"),
    )),
    "slo": ("Checkout budget", (
        Panel("Checkout calls that fail, 1 minute", '(sum(increase(onsale_http_failures_total{route=~"/events/{event_id}/reservations.*|/orders.*"}[1m])) / sum(increase(onsale_http_request_seconds_count{route=~"/events/{event_id}/reservations.*|/orders.*"}[1m])) >= 0) or vector(0)', "percentunit", "The budget is 0.01 %. Alarm at a hundred times that, with the next panel."),
        Panel("Checkout calls that fail, 5 minutes", '(sum(increase(onsale_http_failures_total{route=~"/events/{event_id}/reservations.*|/orders.*"}[5m])) / sum(increase(onsale_http_request_seconds_count{route=~"/events/{event_id}/reservations.*|/orders.*"}[5m])) >= 0) or vector(0)', "percentunit", "Alarm at twenty times the budget."),
        Panel("5xx by route", "sum by (service, route) (increase(onsale_http_failures_total[5m])) > 0 or vector(0)", "short", "Where.", "{{service}} {{route}}"),
        Panel("Reservation, p99", quantile(0.99, 'onsale_http_request_seconds').replace('_bucket[', '_bucket{route="/events/{event_id}/reservations"}['), "s", "Time of the call."),
        Panel("Order, p99", quantile(0.99, 'onsale_http_request_seconds').replace('_bucket[', '_bucket{route="/orders"}['), "s", "Time of the call."),
        Panel("Requests by status", "sum by (status) (rate(onsale_http_request_seconds_count[1m]))", "reqps", "Of all services.", "{{status}}"),
        Panel("Alarms that fire", 'count by (alertname, severity) (ALERTS{alertstate="firing"}) or vector(0)', "short", "docs/operate/runbook.md says what to do.", "{{alertname}}"),
        Panel("Processes that answer", 'sum(up{job="onsale"})', "short", "Of those in prometheus-targets.json."),
    )),
}  # fmt: skip


def board(name: str) -> dict[str, Any]:
    """One board as Grafana imports it."""
    title, panels = BOARDS[name]
    built = (
        dashboard.Dashboard(f"Onsale: {title}").uid(f"onsale-{name}").tags(["onsale"]).refresh("5s").time("now-30m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR).with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("event").datasource(SOURCE).query("label_values(queue_waiting, event_id)")
            .include_all(include_all=True).all_value(".*").multi(multi=True).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    )  # fmt: skip
    for panel in panels:
        query = prometheus.Dataquery().expr(panel.expr).legend_format(panel.legend or panel.title)
        built.with_panel(
            timeseries.Panel().title(panel.title).description(panel.help).unit(panel.unit).datasource(SOURCE)
            .min(0).span(WIDTH).height(HEIGHT).with_target(query)
        )  # fmt: skip
    made: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True, indent=2).encode(built.build()))
    return made


def write(folder: Path = FOLDER) -> None:
    """Writes every board."""
    for name in BOARDS:
        (folder / f"{name}.json").write_text(json.dumps(board(name), indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
