"""Metrics of the notifier. `kind` is `event` or `order`."""

from prometheus_client import Counter, Gauge, Histogram

STREAMS = Gauge("notifier_streams_open", "Streams open now.", ["kind"])
TURNED_AWAY = Counter("notifier_streams_turned_away_total", "Streams answered with retry and close, by why.", ["why"])
FRAMES = Counter("notifier_frames_written_total", "Frames and snapshots written, one per stream reached.", ["kind"])
AGE = Histogram(
    "notifier_event_age_seconds",
    "Age of a frame's oldest news when it was written to the last stream of its topic.",
    ["kind"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0),
)
SKIPPED = Counter("notifier_frames_skipped_total", "Frames not written because the reader was not reading.", ["kind"])
DROPPED = Counter("notifier_streams_dropped_total", "Streams cut off because the reader did not read.", ["kind"])
STALE = Counter("notifier_frames_stale_total", "Frames from Pub/Sub or a neighbour older than what was known.")
MISSED = Counter("notifier_frames_missed_total", "Frames of which Pub/Sub brought a successor but not the frame itself.")
DEGRADED = Gauge("notifier_feeds_degraded", "Events and orders followed by asking, as their channel is away.")
