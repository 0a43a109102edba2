"""How the notifier paces itself: the times and sizes that no operator needs to turn, and that tests shorten."""

from dataclasses import dataclass

from shared.contracts.frames import FRAME_STALE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """docs/reference/limits.md gives the reasons."""

    heartbeat_s: float = 15.0  # how often a silent stream gets a heartbeat
    retry_ms: int = 2_000  # reconnection delay of clients: this to twice this long
    streams_new_per_s: int = 2_000  # streams that end together reconnect to one process no faster than this
    full_retry_ms: int = 10_000  # reconnection delay of rejected clients
    lag_max_s: float = 2.0  # new streams are rejected while the event loop lags more than this
    memory_free_min_mib: int = 64  # new streams are rejected while machine or container has less free memory
    filters_per_event: int = 64  # distinct filters per event and process; further ones show everything
    stream_max_age_s: float = 1800.0  # a stream ends after 0.5 to 1.5 times this
    half_open_max_s: float = 30.0  # a connection whose peer acknowledges nothing is closed after this
    slow_reader_max_s: float = 10.0  # a reader that reads nothing is disconnected after this
    socket_buffer_bytes: int = 64 * 1024  # unsent data per reader in the kernel; in the process at most as much again
    first_snapshot_timeout_s: float = 3.0  # how long a new stream waits for its first snapshot
    ask_interval_s: float = 1.0  # how often frames are requested while Pub/Sub does not deliver them
    channel_stale_after_s: float = FRAME_STALE_S  # an event's channel that is silent for so long counts as away
    feed_idle_ttl_s: float = 5.0  # how long a feed or topic outlives its last stream


DEFAULTS = Tuning()
