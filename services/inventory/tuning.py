"""How inventory paces itself: the times and sizes that no operator needs to turn, and that tests shorten."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """docs/reference/limits.md gives the reasons."""

    claims_waiting_max: int = 4096  # fans per event who may wait for their pass at one process
    hold_batch_max: int = 256  # reservations per transaction
    hold_batch_max_contended: int = 24  # the same while several events sell, so that none waits long
    hold_waiting_max: int = 4096  # reservations that may wait per event
    given_back_at_once: int = 3  # holds that one fan may give back in a row
    given_back_pause_s: float = 5.0  # after that, the pause before the fan may reserve again; each allows one more
    redis_check_interval_ms: int = 200  # how often the stock in Redis is checked
    expiry_interval_ms: int = 250  # how often due holds are expired by their deadlines in Redis
    expiry_scan_interval_ms: int = 2000  # how often the database is scanned for due holds
    publish_interval_ms: int = 250  # shortest time between two stock frames of an event
    reconcile_interval_s: float = 60.0  # how often Redis and the database are compared


DEFAULTS = Tuning()
