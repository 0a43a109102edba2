"""Metrics of the notifier, each told of in docs/streams.md. `kind` is `event` or `order`."""

from prometheus_client import Counter, Gauge, Histogram

STREAMS = Gauge("notifier_streams_open", "Streams open now.", ["kind"])
OPENED = Counter("notifier_streams_opened_total", "Streams opened, by the way they are held.", ["transport"])
TURNED_AWAY = Counter("notifier_streams_rejected_total", "Streams answered with retry and close, by why.", ["reason"])
RECONNECTS = Counter("notifier_reconnects_total", "Streams opened by listeners who had heard something before.")
REPLAYS = Counter("notifier_replays_total", "What a newcomer was given: snapshot, delta or none.", ["kind"])
GAPS = Counter("notifier_resume_failures_total", "Reconnects whose last id could not be continued from.")
PAUSED = Gauge("notifier_streams_paused", "Streams whose reader does not read now.")
ENDED = Counter(
    "notifier_streams_ended_total", "Streams ended, by why: left, slow, half_open, broken, max_age, drain.", ["reason"]
)
FRAMES = Counter("notifier_frames_written_total", "Frames and snapshots written, one per stream reached.", ["kind"])
CONFLATED = Counter("notifier_frames_conflated_total", "News that left with later news in one frame.", ["kind"])
SKIPPED = Counter("notifier_frames_skipped_total", "Frames not written because the reader was not reading.", ["kind"])
AGE = Histogram(
    "notifier_event_age_seconds",
    "Age of a frame's oldest news when it was written to the last stream of its topic.",
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
    "How late the timer of the heartbeats was.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0),
)
GC_PAUSE = Histogram(
    "notifier_gc_pause_seconds",
    "Time one run of the garbage collector stopped the process.",
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0),
)
STALE = Counter("notifier_frames_stale_total", "Frames from Pub/Sub or a neighbour older than what was known.")
MISSED = Counter(
    "notifier_frames_missed_total", "Frames of which Pub/Sub brought a successor but not the frame itself."
)
DEGRADED = Gauge("notifier_feeds_degraded", "Events and orders followed by asking, as their channel is away.")
