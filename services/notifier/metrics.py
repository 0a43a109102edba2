"""Metrics of the notifier; docs/streams.md lists each. `kind` is `event` or `order`."""

from prometheus_client import Counter, Gauge, Histogram

STREAMS = Gauge("notifier_streams_open", "Streams open now.", ["kind"])
OPENED = Counter("notifier_streams_opened_total", "Streams opened, by transport.", ["transport"])
REJECTED = Counter("notifier_streams_rejected_total", "Streams rejected with a retry delay, by reason.", ["reason"])
RECONNECTS = Counter("notifier_reconnects_total", "Streams opened with a Last-Event-ID.")
REPLAYS = Counter("notifier_replays_total", "What a new stream got first: snapshot, delta or none.", ["kind"])
RESUME_FAILURES = Counter("notifier_resume_failures_total", "Reconnects whose last id could not be resumed from.")
PAUSED = Gauge("notifier_streams_paused", "Streams whose reader does not read now.")
ENDED = Counter(
    "notifier_streams_ended_total",
    "Streams ended, by reason: left, slow, half_open, broken, max_age, drain.",
    ["reason"],
)
FRAMES = Counter("notifier_frames_written_total", "Frames and snapshots written, counted per stream.", ["kind"])
CONFLATED = Counter("notifier_frames_conflated_total", "Updates that left with later ones in one frame.", ["kind"])
SKIPPED = Counter("notifier_frames_skipped_total", "Frames skipped because the reader did not read.", ["kind"])
EVENT_AGE = Histogram(
    "notifier_event_age_seconds",
    "Age of a frame's oldest change when it was written to the last stream of its topic.",
    ["kind"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0),
)
FAN_OUT = Histogram(
    "notifier_fan_out_seconds",
    "Time from the first to the last write of a frame.",
    ["kind"],
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
)
LOOP_LAG = Histogram(
    "notifier_loop_lag_seconds",
    "How late the heartbeat timer ticked.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0),
)
GC_PAUSE = Histogram(
    "notifier_gc_pause_seconds",
    "Time one run of the garbage collector stopped the process.",
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0),
)
STALE = Counter("notifier_frames_stale_total", "Frames from Pub/Sub or a service that were older than the current one.")
MISSED = Counter(
    "notifier_frames_missed_total", "Frames that Pub/Sub did not deliver although it delivered their successor."
)
DEGRADED = Gauge(
    "notifier_feeds_degraded", "Events and orders whose frames are requested because Pub/Sub does not deliver them."
)
