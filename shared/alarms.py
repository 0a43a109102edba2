"""The alarms of a sale, in one table: what fires, how urgent it is, what it means and what to do.

`onsale deploy-config` writes Prometheus' rules and Alertmanager's routes from it, `make api-documents` the runbook. An
alarm fires when `expr` has been true for `for_s` seconds; a sale is over in minutes, so the windows are short.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Severity = Literal["critical", "warning", "info"]  # a pager, a chat, a mail once a day
URGENCY: tuple[Severity, ...] = get_args(Severity)
Group = Literal["line", "stock", "orders", "streams", "engines"]
CHECKOUT_ROUTES = '{route=~"/events/{event_id}/reservations.*|/orders.*"}'
CALLED_FANS = (
    '{method="POST",route=~"/events/{event_id}/queue/pass|/events/{event_id}/reservations|/orders'
    '|/orders/{reference}/payments"}'
)
BUDGET = 0.0001  # of checkout calls may fail: 99.99 % of one sale, not of thirty days


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """`summary` is a template of Prometheus; the other texts are for the runbook, in Markdown."""

    name: str
    group: Group
    severity: Severity
    expr: str
    for_s: int
    summary: str
    meaning: str
    check_first: str
    do: str


def _budget_burns(window: str, *, times: int) -> str:
    failed = f"sum(increase(onsale_http_failures_total{CHECKOUT_ROUTES}[{window}]))"
    calls = f"sum(increase(onsale_http_request_seconds_count{CHECKOUT_ROUTES}[{window}]))"
    return f"({failed} / {calls} > {times} * {BUDGET})"


def _share(part: str, whole: str, window: str) -> str:
    return f"sum(rate({part}[{window}])) / sum(rate({whole}[{window}]))"


FAILED_HOLDS = 'inventory_holds_total{outcome=~"unavailable|overloaded|clocks-apart|failed"}'
FALLBACK = 'orders_checkout_seconds_count{path="late"}'
NEWS_AGE_P999 = "histogram_quantile(0.999, sum by (le) (rate(notifier_event_age_seconds_bucket[1m])))"
REDIS_MEMORY = "onsale_redis_memory_bytes / (onsale_redis_memory_limit_bytes > 0)"
FAILED_HOLDS_CHECK = "Logs of inventory (`dependency.unavailable`), PostgreSQL and Redis; `onsale doctor`."
WORKERS_CHECK = "`orders_due` and the processors of the orders processes; an order at its provider takes no worker."
NEWS_CHECK = "Load of each notifier, `onsale_loop_lag_seconds`, and `notifier_streams_open`."
REDIS_MEMORY_CHECK = "`queue_line_memory_bytes`, the event log's length (`ONSALE_EVENT_LOG_LENGTH_MAX`)."

ALARMS: tuple[Alarm, ...] = (
    Alarm(
        name="QueueVeryLong", group="line", severity="critical", for_s=10,
        expr="max by (event_id) (queue_waiting) > 1e6",
        summary="{{ $labels.event_id }}: {{ $value | humanize }} fans wait",
        meaning="More than a million fans wait for one event.",
        check_first="`onsale room show EVENT_ID`: the admission rate, and the wait it means. Memory of Redis and the number of open streams.",
        do="Raise the rate only if orders and inventory have room (`onsale plan`). Tell fans what the wait is; add gateways and notifiers if they are near a full core.",
    ),
    Alarm(
        name="QueueLong", group="line", severity="warning", for_s=10,
        expr="max by (event_id) (queue_waiting) > 5e5",
        summary="{{ $labels.event_id }}: {{ $value | humanize }} fans wait",
        meaning="More than 500,000 fans wait for one event.",
        check_first="`onsale room show EVENT_ID`, and the load of each process.",
        do="Nothing if it was planned for. Otherwise compare with `onsale plan` and add processes before it doubles.",
    ),
    Alarm(
        name="WaitLong", group="line", severity="warning", for_s=60,
        expr="sum by (event_id) (rate(queue_wait_seconds_sum[5m])) / sum by (event_id) (rate(queue_wait_seconds_count[5m])) > 900",
        summary="{{ $labels.event_id }}: fans called now waited {{ $value | humanizeDuration }} on average",
        meaning="Those who are called now have waited more than 15 minutes.",
        check_first="The admission rate against what was planned, and whether the overload guard holds it back (`queue_throttle_share`).",
        do="Raise the rate if checkout has room: `onsale room set EVENT_ID --rate …`. If not, tell fans.",
    ),
    Alarm(
        name="LineStandsStill", group="line", severity="critical", for_s=15,
        expr="max by (event_id) (queue_waiting) > 100 and on (event_id) sum by (event_id) (rate(queue_called_total[30s])) == 0 and on (event_id) max by (event_id) (queue_room_open) == 1",
        summary="{{ $labels.event_id }}: nobody was called although the room is open and {{ $value | humanize }} fans wait",
        meaning="The room is open and fans wait, but nobody was called for half a minute.",
        check_first="`onsale room show EVENT_ID` names what limits calls: the rate, `max_active` (all slots taken), or stock. Then the log of the queue: `tick.failed`, `redis.unavailable`.",
        do="All slots taken: raise `max_active`, or wait for sessions to end. Redis or PostgreSQL away: see [ServiceDown](#servicedown). Rate 0: somebody set it; `onsale room history EVENT_ID` says who.",
    ),
    Alarm(
        name="PromisesBroken", group="line", severity="warning", for_s=120,
        expr='sum(rate(gateway_estimate_ratio_bucket{estimate="kept",le="1.5"}[5m])) / (sum(rate(gateway_estimate_ratio_count{estimate="kept"}[5m])) > 0) < 0.9',
        summary="Only {{ $value | humanizePercentage }} of the waits ended within 1.5 times the estimate",
        meaning="Fans wait longer than they were told, without a reason having been given.",
        check_first="The admission rate over the last minutes: it was lowered, or calls come in bursts because slots are full.",
        do="Keep the rate steady. A changed rate is announced to fans with its reason; a full room is not foreseen by the estimate.",
    ),
    Alarm(
        name="Oversold", group="stock", severity="critical", for_s=0,
        expr="sum(increase(inventory_oversell_total[10m])) > 0 or sum(inventory_oversell_waiting) > 0",
        summary="More was sold than there is: {{ $value | humanize }} places",
        meaning="A place was sold twice, or more places than a section has. The database forbids it; it can happen after a restore from a backup, or by a change of the stock.",
        check_first="`onsale reconcile show EVENT_ID`: the cases, and what the event's oversell policy does with each.",
        do="Cases that wait for a decision: `onsale reconcile approve EVENT_ID`, or give the fan another seat. See [reconcile.md](reconcile.md).",
    ),
    Alarm(
        name="ReservationsFailVeryOften", group="stock", severity="critical", for_s=15,
        expr=f"{_share(FAILED_HOLDS, 'inventory_holds_total', '1m')} > 0.10",
        summary="{{ $value | humanizePercentage }} of the reservations fail",
        meaning="More than a tenth of the attempts to reserve failed for a reason of ours; taken seats do not count.",
        check_first=FAILED_HOLDS_CHECK,
        do="Lower the admission rate until it ends. An engine is away or slow: bring it back; nothing that was promised is lost.",
    ),
    Alarm(
        name="ReservationsFailOften", group="stock", severity="warning", for_s=15,
        expr=f"{_share(FAILED_HOLDS, 'inventory_holds_total', '1m')} > 0.05",
        summary="{{ $value | humanizePercentage }} of the reservations fail",
        meaning="More than one in twenty attempts to reserve failed for a reason of ours.",
        check_first=FAILED_HOLDS_CHECK,
        do="Lower the admission rate a little and look for the cause.",
    ),
    Alarm(
        name="HoldsExpire", group="stock", severity="warning", for_s=120,
        expr='sum(rate(inventory_holds_ended_total{reason=~"deadline|scan"}[10m])) / (sum(rate(inventory_holds_ended_total[10m])) + sum(rate(orders_orders_total{status="confirmed"}[10m]))) > 0.5',
        summary="{{ $value | humanizePercentage }} of the holds end unpaid",
        meaning="More than half of the holds run out before they are paid.",
        check_first="`onsale stock hold-times EVENT_ID`: how long paying takes. Declines of the payment provider.",
        do="If payment is slow or fails, see [StepsFail](#stepsfail). If fans need longer, raise `hold_ttl_s`.",
    ),
    Alarm(
        name="HoldsEndLate", group="stock", severity="warning", for_s=60,
        expr="histogram_quantile(0.99, sum by (le) (rate(inventory_hold_ended_late_seconds_bucket[2m]))) > 15",
        summary="Holds end {{ $value | humanizeDuration }} after their deadline (99th percentile)",
        meaning="Places of holds that ran out come back late, so fans see less than there is.",
        check_first="Load of inventory and PostgreSQL; `onsale_loop_failures_total` of its loops; clocks (`onsale_clock_skew_seconds`).",
        do="Add an inventory process. If clocks differ, correct them: holds end by the slowest clock.",
    ),
    Alarm(
        name="PaidAfterRelease", group="stock", severity="critical", for_s=0,
        expr='sum(increase(orders_orders_total{status="late_paid"}[10m])) > 0',
        summary="{{ $value | humanize }} orders were paid after their hold was released",
        meaning="A payment succeeded for a hold that was no longer there. The order takes its places again if they are free, and else gives the money back; neither should happen.",
        check_first="`onsale order find --status late_paid` and `--status review`.",
        do="Resolve what waits for a decision. The payment provider answered later than `ORDERS_PROVIDER_TIMEOUT_S` and the hold allow: raise `hold_ttl_s`. Otherwise a clock jumped.",
    ),
    Alarm(
        name="Drift", group="stock", severity="critical", for_s=60,
        expr="max by (event_id) (inventory_drift_standing) > 0",
        summary="{{ $labels.event_id }}: Redis and the database differ in {{ $value | humanize }} places for a minute",
        meaning="Redis and PostgreSQL disagree about the stock, and reconciliation has not corrected it.",
        check_first="`onsale reconcile show EVENT_ID` lists each difference.",
        do="PostgreSQL is right. If differences stay, `onsale reconcile now EVENT_ID`, which corrects what lasts.",
    ),
    Alarm(
        name="StepsFail", group="orders", severity="warning", for_s=30,
        expr="sum(rate(orders_step_failures_total[2m])) / (sum(rate(orders_steps_total[2m])) + sum(rate(orders_step_failures_total[2m]))) > 0.05",
        summary="{{ $value | humanizePercentage }} of the steps of orders fail and are tried again",
        meaning="Steps of orders fail: the payment provider, inventory or the database does not answer as it should.",
        check_first="`orders_step_failures_total` by step, and the log of orders (`order.retry_scheduled`).",
        do="Provider away: nothing; orders wait and are charged once it is back. Lower the admission rate if holds would run out meanwhile.",
    ),
    Alarm(
        name="OrdersWait", group="orders", severity="warning", for_s=15,
        expr="max(orders_due) > 100",
        summary="{{ $value | humanize }} orders wait for a worker",
        meaning="More than a hundred orders of one process are due and find no free worker there, nor one in another process.",
        check_first="`orders_oldest_due_seconds`, load of the orders processes, and the provider's answers (`orders_provider_seconds`).",
        do="Add an orders process: it takes of the orders that wait. Or lower the admission rate.",
    ),
    Alarm(
        name="WorkersLate", group="orders", severity="warning", for_s=10,
        expr="min(orders_workers_in_time) == 0",
        summary="The workers of an orders process do not begin orders in time",
        meaning="An order of a process waited a second for a worker. Such orders are processed in their requests, as far as there are slots.",
        check_first=WORKERS_CHECK,
        do="Nothing is lost. Add an orders process, or lower the admission rate.",
    ),
    Alarm(
        name="FallbackVeryOften", group="orders", severity="critical", for_s=15,
        expr=f"{_share(FALLBACK, 'orders_checkout_seconds_count', '2m')} > 0.10",
        summary="{{ $value | humanizePercentage }} of the checkouts are processed in their request",
        meaning="No worker is free in time for more than a tenth of the orders: fans wait for the provider themselves.",
        check_first=WORKERS_CHECK,
        do="Lower the admission rate; add orders processes.",
    ),
    Alarm(
        name="FallbackOften", group="orders", severity="warning", for_s=15,
        expr=f"{_share(FALLBACK, 'orders_checkout_seconds_count', '2m')} > 0.05",
        summary="{{ $value | humanizePercentage }} of the checkouts are processed in their request",
        meaning="No worker is free in time for more than one in twenty orders.",
        check_first=WORKERS_CHECK,
        do="Add an orders process.",
    ),
    Alarm(
        name="OrdersNeedAPerson", group="orders", severity="warning", for_s=0,
        expr="sum(increase(orders_reviews_total[15m])) > 0",
        summary="{{ $value | humanize }} orders wait for a decision",
        meaning="An order cannot be finished by a rule: the amount differs, the outcome of a charge stays unknown, a refund was refused, part of the money was refunded at the provider itself, or the buyer's bank disputes the payment.",
        check_first="`onsale order find --status review`; `onsale order show REFERENCE` says why.",
        do="`onsale order resolve REFERENCE`: confirm, refund or expire it. Answer a dispute at the provider, too: its deadline runs there.",
    ),
    Alarm(
        name="MailsGivenUp", group="orders", severity="warning", for_s=0,
        expr='sum(increase(orders_mails_total{outcome=~"rejected|abandoned"}[15m])) > 10',
        summary="{{ $value | humanize }} mails were given up",
        meaning="The mail server refused mails for good, or could not be reached for a day. A few are mistyped addresses; many are a server that does not accept mail of this sender.",
        check_first="`onsale order find --mail-failed`, `onsale order show REFERENCE`, and the server's words in `orders.mail.error`.",
        do="Correct `ORDERS_SMTP_URL`, `ORDERS_MAIL_FROM` or the sender's standing. The pages of these orders tell their buyers, who can correct their address; `POST /orders/links` sends the links again.",
    ),
    Alarm(
        name="NewsVeryOld", group="streams", severity="critical", for_s=15,
        expr=f"{NEWS_AGE_P999} > 5",
        summary="News reaches fans after {{ $value | humanizeDuration }} (99.9th percentile)",
        meaning="Fans see changes of stock and orders more than 5 s late.",
        check_first=NEWS_CHECK,
        do="Add notifiers; new streams are refused by a process that is late, and go to another.",
    ),
    Alarm(
        name="NewsOld", group="streams", severity="warning", for_s=15,
        expr=f"{NEWS_AGE_P999} > 2",
        summary="News reaches fans after {{ $value | humanizeDuration }} (99.9th percentile)",
        meaning="Fans see changes more than 2 s late.",
        check_first=NEWS_CHECK,
        do="Add notifiers before it becomes worse.",
    ),
    Alarm(
        name="FeedsDegraded", group="streams", severity="warning", for_s=10,
        expr="sum(notifier_feeds_degraded) > 0",
        summary="{{ $value | humanize }} feeds are polled because Pub/Sub does not deliver them",
        meaning="Pub/Sub of Redis does not deliver: notifiers poll the services instead, every second.",
        check_first="Redis: its log, its clients (`CLIENT LIST TYPE pubsub`), its output buffer limits.",
        do="Bring Redis back; streams stay open and correct meanwhile, a second late.",
    ),
    Alarm(
        name="RedisMemoryVeryHigh", group="engines", severity="critical", for_s=15,
        expr=f"{REDIS_MEMORY} > 0.80",
        summary="Redis uses {{ $value | humanizePercentage }} of its memory",
        meaning="Redis has used more than 80 % of `maxmemory`. When it is full it refuses writes, and nobody can join or reserve.",
        check_first=REDIS_MEMORY_CHECK,
        do="Raise `maxmemory` (`CONFIG SET maxmemory`), if the machine has it. Delete events that are over.",
    ),
    Alarm(
        name="RedisMemoryHigh", group="engines", severity="warning", for_s=60,
        expr=f"{REDIS_MEMORY} > 0.60",
        summary="Redis uses {{ $value | humanizePercentage }} of its memory",
        meaning="Redis has used more than 60 % of `maxmemory`.",
        check_first=REDIS_MEMORY_CHECK,
        do="Raise `maxmemory` before the sale.",
    ),
    Alarm(
        name="PoolExhausted", group="engines", severity="critical", for_s=15,
        expr="sum by (service, pool) (increase(onsale_pool_timeouts_total[1m])) > 0 or max by (service, pool) (onsale_pool_in_use / onsale_pool_size) >= 1",
        summary="{{ $labels.service }}: no connection is left in the pool of {{ $labels.pool }}",
        meaning="All connections of a pool are in use, and callers wait or are refused.",
        check_first="`onsale_batch_seconds` and `onsale_database_lock_waiting`: slow statements hold connections.",
        do="Find what is slow first. Then raise `<SERVICE>_POSTGRES_POOL_MAX`, within `max_connections` of PostgreSQL.",
    ),
    Alarm(
        name="LocksWait", group="engines", severity="warning", for_s=15,
        expr="max by (service) (onsale_database_lock_waiting) > 10",
        summary="{{ $labels.service }}: {{ $value | humanize }} statements wait for a lock",
        meaning="Many statements wait for one another in PostgreSQL.",
        check_first="`pg_stat_activity` and `pg_blocking_pids()`; a person's open transaction, a migration, a slow disk.",
        do="End what blocks (`pg_terminate_backend`); a service tries again by itself.",
    ),
    Alarm(
        name="ServiceDown", group="engines", severity="critical", for_s=10,
        expr='up{job="onsale"} == 0',
        summary="{{ $labels.process }} ({{ $labels.instance }}) does not answer",
        meaning="A process does not answer a scrape. Others of its kind go on; the last one of a kind stops its part of the sale.",
        check_first="Its log (`log` in the data directory), its container's state, memory limits.",
        do="It is started again by what supervises it; if not, start it. `docs/reference/recovery.md` says what fans see meanwhile.",
    ),
    Alarm(
        name="CalledFansRefused", group="engines", severity="critical", for_s=0,
        expr=f"sum by (service, route) (increase(onsale_http_failures_total{CALLED_FANS}[1m])) > 0",
        summary="{{ $labels.service }}: {{ $value | humanize }} calls of fans who were called failed ({{ $labels.route }})",
        meaning="Fans whose turn it was asked for their pass, held, ordered or paid, and were answered 5xx. The line should have waited for them: a process refused as its last resort, an engine was away, or there is a bug.",
        check_first="The answers' status (`onsale_http_request_seconds_count`). 503: `queue_in_progress` against `queue_ceiling`, and the room's `pace` (`onsale room show EVENT_ID`); is the guard on, and is a tenth of the rate more than checkout completes? 500: the log of that service.",
        do="Lower the admission rate; its floor is a tenth of it. Add an orders or inventory process. Clients repeat by themselves, with the same key: nothing is bought twice.",
    ),
    Alarm(
        name="CheckoutBudgetBurns", group="engines", severity="critical", for_s=0,
        expr=f"{_budget_burns('1m', times=100)} and {_budget_burns('5m', times=20)}",
        summary="{{ $value | humanizePercentage }} of the checkout calls fail",
        meaning="Reservation and order calls are answered 5xx so often that this sale's budget (99.99 % without) is gone in minutes.",
        check_first="`onsale_http_failures_total` by route, then the log of that service.",
        do="Lower the admission rate, so that fewer fans meet it, and look for the cause.",
    ),
    Alarm(
        name="LogBehind", group="engines", severity="warning", for_s=5,
        expr="max by (source) (onsale_event_log_behind_seconds) > 2",
        summary="The event log is {{ $value | humanizeDuration }} behind ({{ $labels.source }})",
        meaning="Events have waited in the outbox for more than two seconds: other systems learn of sales late, and the places of those who bought are free late.",
        check_first="The event log's server (NATS, Kafka or Redis), the log of the service (`relay`), and transactions that stay open (`backend_xid` in `pg_stat_activity`): events wait for those that began before them.",
        do="Bring the log back, or end the transaction; the outbox is delivered in order, and nothing is lost.",
    ),
    Alarm(
        name="EventsUnread", group="engines", severity="warning", for_s=60,
        expr="max by (source, reader) (onsale_events_unread_seconds) > 300",
        summary="{{ $labels.reader }} is {{ $value | humanizeDuration }} behind the events of {{ $labels.source }}",
        meaning="A feature has not taken an event for five minutes: what it does with them (webhooks, say) stands still. Sales go on.",
        check_first="The log of the service: `loop.failed` says which loop, and why.",
        do="Mend the cause; the feature goes on where it stopped. Events that wait for it are kept for a week.",
    ),
)  # fmt: skip
BY_NAME = {alarm.name: alarm for alarm in ALARMS}
