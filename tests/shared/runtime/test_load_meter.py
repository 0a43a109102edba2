"""The load meter of a service: its answered, refused and unanswered requests, and its full connection pool."""

import time
from types import SimpleNamespace
from typing import cast

import pytest

from shared.concurrency.background import Quiet
from shared.contracts.frames import LoadFrame
from shared.postgres import engine as postgres_engine
from shared.postgres.settings import PostgresSettings
from shared.process.load_meter import KEPT_MAX, QUIET_S, LoadMeter
from shared.redis.client import Redis
from tests.support.wait import wait_until


def finish_write(meter: LoadMeter, seconds: float, *, status: int = 200) -> None:
    meter.request_finished(
        meter.request_started({"method": "POST", "path": "/orders"}, time.perf_counter()), status, seconds
    )


def test_only_writes_of_fans_are_measured_but_refusals_of_all_requests() -> None:
    meter = LoadMeter("orders")
    for method, path in (("GET", "/orders/x"), ("POST", "/internal/y"), ("POST", "/admin/z"), ("POST", "/webhooks/a")):
        request_id = meter.request_started({"method": method, "path": path}, time.perf_counter())
        meter.request_finished(request_id, 503, 9.0)
    finish_write(meter, 0.2)
    frame = meter.frame()
    assert (frame.writes, frame.refused, frame.p95_ms) == (1, 4, 200)


def test_one_slow_write_does_not_move_the_p95_and_old_writes_are_forgotten() -> None:
    meter = LoadMeter("orders")
    for seconds in [0.01] * 9 + [5.0]:
        finish_write(meter, seconds)
    assert meter.frame().p95_ms == 10
    finish_write(meter, 5.0)
    assert meter.frame().p95_ms == 5000
    for _ in range(5):
        meter.frame()
    assert (meter.frame().writes, meter.frame().p95_ms) == (0, 0)


class Published(list[LoadFrame]):
    """The frames that were published."""

    async def publish(self, _: str, frame: str) -> None:
        self.append(LoadFrame.model_validate_json(frame))


async def test_a_frame_without_news_says_when_the_next_one_comes_late() -> None:
    meter, published = LoadMeter("orders"), Published()
    redis, db = cast(Redis, published), cast(postgres_engine.AsyncEngine, SimpleNamespace(pool=None))
    assert await meter.publish(redis, db) == Quiet(QUIET_S)
    finish_write(meter, 0.1)
    assert await meter.publish(redis, db) is None
    assert [frame.rests_ms for frame in published] == [1000 * QUIET_S, 0]
    counts = iter([{"streams_open": 0}, {"streams_open": 0}, {"streams_open": 1}])
    notifier = LoadMeter("notifier")
    outcomes = [await notifier.publish_presence(redis, lambda: next(counts)) for _ in range(3)]
    assert outcomes == [None, Quiet(QUIET_S), None]
    assert [frame.streams_open for frame in published[2:]] == [0, 0, 1]


@pytest.mark.parametrize("age_s", [0.1, 3.0])
def test_an_unanswered_request_counts_with_its_age_once_it_is_old(age_s: float) -> None:
    meter = LoadMeter("orders")
    for _ in range(6):
        meter.request_started({"method": "POST", "path": "/orders"}, time.perf_counter() - age_s)
    frame = meter.frame()
    assert (frame.writes, frame.p95_ms > 2900) == ((6, True) if age_s > 1 else (0, False))


def test_many_writes_are_kept_as_a_sample() -> None:
    meter = LoadMeter("orders")
    for n in range(5000):
        finish_write(meter, 1.0 if n % 10 == 0 else 0.01)
    assert len(meter._slots[-1].seconds) == KEPT_MAX
    assert (meter.frame().writes, meter._open) == (5000, {})


async def test_the_time_without_a_free_connection_is_measured(postgres_url: str) -> None:
    db = postgres_engine.connect(PostgresSettings(postgres_url=postgres_url, postgres_pool_max=1), name="test")
    meter = LoadMeter("orders")
    async with db.connect():
        meter._pool_full_s(db)
        await wait_until(lambda: meter._pool_full_s(db) > 0.02)
    assert meter._pool_full_s(db) == 0
    await db.dispose()
