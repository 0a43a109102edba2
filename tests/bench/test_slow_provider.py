"""The slow provider: a pace is kept if its rate and its memory are those of the fast one, and nothing is refused."""

from dataclasses import replace

import pytest

from bench.orders.slow_provider import Pace, claims

FAST = Pace(0.05, 800, 790, refused=0, post_p95_ms=100, p50_s=0.1, p95_s=0.2, mib=(100, 110, 110, 112))
SLOW = replace(FAST, latency_s=2.5, per_s=780, p95_s=2.7)


@pytest.mark.parametrize(
    ("pace", "verdict"),
    [
        (SLOW, "met"), (replace(SLOW, per_s=700), "missed"), (replace(SLOW, mib=(100, 110, 200, 300)), "missed"),
        (replace(SLOW, refused=1), "missed"), (replace(SLOW, mib=(100,)), "met"),
    ],
    ids=["as the fast one", "slower", "memory grows", "refuses", "one sample"],
)  # fmt: skip
def test_a_slow_provider_is_held_to_the_pace_of_a_fast_one(pace: Pace, verdict: str) -> None:
    [claim] = claims([FAST, pace])
    assert claim.ratio == f"{pace.per_s / FAST.per_s:.2f} ×, {verdict}"
    assert pace.row()[:4] == ("2.5", "800", f"{pace.per_s:,.0f}", f"{pace.refused}")
