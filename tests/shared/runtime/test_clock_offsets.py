"""Deadlines are kept by the slowest of three clocks, and not at all while one of them is a minute off."""

import pytest

from shared.errors.problems import ClocksApart
from shared.process.clock_offsets import record
from shared.runtime.clock import APART_MS, POSTGRES, REDIS, Clocks, now_ms


def clocks(*, postgres_ms: int = 0, redis_ms: int = 0) -> Clocks:
    """So far ahead of this process are the others."""
    read = Clocks("queue")
    record(read, POSTGRES, [postgres_ms])
    record(read, REDIS, [redis_ms])
    return read


def test_the_slowest_clock_counts_and_one_far_off_stops_the_sale() -> None:
    for ahead, behind_ms in (({"postgres_ms": -5_000}, 5_000), ({"redis_ms": -9_000}, 9_000), ({"redis_ms": 9_000}, 0)):
        assert abs(now_ms() - behind_ms - clocks(**ahead).slowest_ms()) < 1_000
    clocks(postgres_ms=APART_MS).require()
    for postgres_ms in (-APART_MS - 1, APART_MS + 1):
        with pytest.raises(ClocksApart):
            clocks(postgres_ms=postgres_ms).require()
    assert clocks(redis_ms=APART_MS + 1).apart() == [REDIS]
