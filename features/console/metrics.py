"""Metrics of the console; docs/reference/metrics.md lists each."""

from prometheus_client import Counter, Gauge

from shared.runtime.metrics import with_series

SIGN_INS = with_series(
    Counter("console_sign_ins_total", "Attempts to sign in: key, link, wrong, limited.", ["outcome"]),
    outcome=("key", "link", "wrong", "limited"),
)
STREAMS = Gauge("console_streams_open", "Streams open now.")
CUT = Counter("console_streams_cut_total", "Streams cut because their reader did not read.")
EVENTS = Gauge("console_events_gathered", "Events whose figures are gathered now.")
QUESTIONS = with_series(
    Counter(
        "console_questions_total",
        "Questions to admin APIs and Alertmanager: answered, failed.",
        ["service", "outcome"],
    ),
    service=("queue", "inventory", "orders", "gateway", "alertmanager"),
    outcome=("answered", "failed"),
)
MALFORMED = Gauge("console_alerts_malformed", "Alerts of Alertmanager's last answer that were left out as malformed.")
SAMPLES = with_series(
    Counter("console_samples_total", "Samples of figures: kept, failed.", ["outcome"]), outcome=("kept", "failed")
)
