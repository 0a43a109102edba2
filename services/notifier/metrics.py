"""Metrics of the notifier; docs/operate/streams.md lists each. `kind` is `event` or `order`."""

from prometheus_client import Counter, Gauge, Histogram

from shared.runtime.metrics import with_series

KINDS = ("event", "order")
STREAMS = with_series(
    Gauge("notifier_streams_open", "Streams open now.", ["kind"]),
    kind=KINDS,
)
OPENED = with_series(
    Counter("notifier_streams_opened_total", "Streams opened, by transport.", ["transport"]),
    transport=("detached", "asgi", "sse_starlette"),
)
REJECTED = with_series(
    Counter("notifier_streams_rejected_total", "Streams rejected with a retry delay, by reason.", ["reason"]),
    reason=("full", "identity", "lag", "memory", "draining", "unanswered"),
)
WIDENED = Counter(
    "notifier_filters_widened_total",
    "Streams that show everything instead of what they asked for, as their event has too many different filters.",
)
RECONNECTS = Counter("notifier_reconnects_total", "Streams opened with a Last-Event-ID.")
REPLAYS = with_series(
    Counter("notifier_replays_total", "What a new stream got first: snapshot, delta or none.", ["kind"]),
    kind=("snapshot", "delta", "none"),
)
RESUME_FAILURES = Counter("notifier_resume_failures_total", "Reconnects whose last id could not be resumed from.")
PAUSED = Gauge("notifier_streams_paused", "Streams whose reader does not read now.")
ENDED = with_series(
    Counter(
        "notifier_streams_ended_total",
        "Streams ended, by reason: left, slow, half_open, broken, max_age, drain, revoked.",
        ["reason"],
    ),
    reason=("left", "slow", "half_open", "broken", "max_age", "drain", "revoked"),
)
FRAMES = with_series(
    Counter("notifier_frames_written_total", "Frames and snapshots written, counted per stream.", ["kind"]),
    kind=KINDS,
)
CONFLATED = with_series(
    Counter("notifier_frames_conflated_total", "Updates that left with later ones in one frame.", ["kind"]),
    kind=KINDS,
)
SKIPPED = with_series(
    Counter("notifier_frames_skipped_total", "Frames skipped because the reader did not read.", ["kind"]),
    kind=KINDS,
)
EVENT_AGE = with_series(
    Histogram(
        "notifier_event_age_seconds",
        "Age of a frame's oldest change when it was written to the last stream of its topic.",
        ["kind"],
        buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0),
    ),
    kind=KINDS,
)
FAN_OUT = with_series(
    Histogram(
        "notifier_fan_out_seconds",
        "Time from the first to the last write of a frame.",
        ["kind"],
        buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
    ),
    kind=KINDS,
)
STALE = Counter("notifier_frames_stale_total", "Frames from Pub/Sub or a service that were older than the current one.")
MISSED = Counter(
    "notifier_frames_missed_total", "Frames that Pub/Sub did not deliver although it delivered their successor."
)
DEGRADED = Gauge(
    "notifier_feeds_degraded", "Events and orders whose frames are requested because Pub/Sub does not deliver them."
)
