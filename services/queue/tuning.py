"""How the queue paces itself: the times and sizes that no operator needs to turn, and that tests shorten."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """docs/reference/limits.md gives the reasons."""

    tick_s: float = 0.2  # time between two ticks of the gatekeeper
    join_batches_in_flight_max: int = 64  # batches of joins processed at once
    ramp_after_loss: bool = True  # after a loss of Redis the rate ramps up within 30 s
    guard_interval_s: float = 0.5  # time between two runs of the control loop


DEFAULTS = Tuning()
