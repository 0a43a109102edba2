"""How orders paces itself: the times and sizes that no operator needs to turn, and that tests shorten."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """docs/reference/limits.md gives the reasons."""

    lock_timeout_ms: int = 2_000  # of a statement for a row: that of a key whose first request is still running
    workers: int = 400  # orders that one process works on at once, without those that wait for a payment provider
    in_work_max: int = 4096  # orders begun and not done, of one process: most wait for a provider, a connection each
    payment_retries: int = 3  # of a charge that fails at a provider that answers otherwise; then it has failed
    retry_first_s: float = 0.5  # first pause after a failed step; it doubles, with jitter
    retry_max_s: float = 15.0  # the longest of these pauses
    takeover_s: float = 5.0  # so long without a heartbeat, and other processes take over a process' orders
    handover_s: float = 5.0  # how long a process that stops waits for its orders in work
    begin_within_s: float = 1.0  # an order that no worker begins within this is processed in its request
    webhook_linger_s: float = 0.25  # how long a payment webhook waits for others, to be stored with them
    inline_slots_max: int = 8  # requests of one process that may process their own order at once
    inline_timeout_s: float = 5.0  # how long such a request waits for the outcome
    lapsed_pass_s: float = 3600.0  # so long after its expiry a pass still proves who made a hold; it opens no order


DEFAULTS = Tuning()
