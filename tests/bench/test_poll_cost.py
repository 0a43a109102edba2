"""The measurement of a poll's processor time works: every request is answered."""

import uvloop

from bench.line.poll_cost import poll_us


def test_polls_of_a_crowd_are_answered_and_measured() -> None:
    assert uvloop.run(poll_us(1_000, 2)) > 0
