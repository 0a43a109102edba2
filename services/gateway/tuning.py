"""How the gateway bounds itself: the times and sizes that no operator needs to turn."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """docs/reference/limits.md gives the reasons."""

    events_max: int = 10_000  # events whose line and page one process caches
    poll_min_ms: int = 2_000  # shortest time between a fan's polls
    poll_max_ms: int = 10_000  # longest time between a fan's polls
    queue_cookie_s: int = 7 * 86_400  # how long the cookie of a queue token lasts
    joins_waiting_max: int = 16_384  # joins of one event that may wait for their batch
    pending_requests_max: int = 8_192  # places of one event that may wait for the queue, per kind of request
    cold_lookups_max: int = 64  # concurrent requests for events that are not cached
    rate_limit_keys_max: int = 65_536  # fans and addresses that one process keeps rate limits for, each


DEFAULTS = Tuning()
