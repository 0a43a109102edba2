"""Every metric of the streams moves with what it counts, and docs/streams.md names it."""

import asyncio
import gc
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from services.notifier import metrics
from services.notifier.broadcast.heartbeat_timer import time_gc
from tests.notifier.conftest import Notifier, Start, fan, line
from tests.notifier.streams.test_slow_reader import Sleeper, flood
from tests.support.wait import wait_until

GUIDE = Path(__file__).parents[3] / "docs" / "streams.md"
NAMES = [
    metric._name + ("_total" if metric._type == "counter" else "")
    for metric in vars(metrics).values()
    if isinstance(metric, Counter | Gauge | Histogram)
]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


class Moved:
    """The changes of metric samples."""

    def __init__(self, *samples: tuple[str, dict[str, str]]) -> None:
        self._began = {(name, *sorted(labels.items())): value(name, **labels) for name, labels in samples}

    def by(self, name: str, **labels: str) -> float:
        return value(name, **labels) - self._began[(name, *sorted(labels.items()))]


@pytest.mark.parametrize("name", NAMES)
def test_each_metric_is_documented(name: str):
    assert f"`{name}`" in GUIDE.read_text()


async def test_ages_and_fan_out_are_measured_once_a_frame(notifier: Notifier):
    event = {"kind": "event"}
    names = ("event_age_seconds_count", "event_age_seconds_sum", "fan_out_seconds_count", "frames_written_total")
    moved = Moved(*((f"notifier_{name}", event) for name in names))
    clients = [await notifier.listen(token=fan(n)) for n in range(3)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    old = line(11, 6).model_copy(update={"at_ms": line(1).at_ms - 1_500})
    await notifier.show(old)
    await wait_until(lambda: all(client.last("line")["head_seq"] == 6 for client in clients))
    assert moved.by("notifier_event_age_seconds_count", **event) == 1
    assert 1.5 <= moved.by("notifier_event_age_seconds_sum", **event) < 3
    assert moved.by("notifier_fan_out_seconds_count", **event) == 1
    assert moved.by("notifier_frames_written_total", **event) == 3


async def test_what_waits_for_a_window_is_counted_as_conflated(start: Start):
    moved = Moved(("notifier_frames_conflated_total", {"kind": "event"}))
    notifier = await start(window_ms=200)
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    for head_seq in range(6, 16):
        await notifier.show(line(head_seq + 5, head_seq))
    await wait_until(lambda: client.last("line")["head_seq"] == 15)
    assert 7 <= moved.by("notifier_frames_conflated_total", kind="event") <= 9


async def test_a_slow_reader_is_counted_as_paused_skipped_and_ended(start: Start):
    moved = Moved(
        ("notifier_frames_skipped_total", {"kind": "event"}), ("notifier_streams_ended_total", {"reason": "slow"})
    )
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, slow_reader_max_s=1.0, heartbeat_s=1)
    sleeper = Sleeper(notifier.port, fan(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1012))
    assert value("notifier_streams_paused") == 1
    await wait_until(lambda: moved.by("notifier_streams_ended_total", reason="slow") == 1)
    assert moved.by("notifier_frames_skipped_total", kind="event") > 2
    assert value("notifier_streams_paused") == 0
    sleeper.socket.close()


async def test_reconnects_are_counted_with_what_they_got(notifier: Notifier):
    kinds = [("notifier_replays_total", {"kind": kind}) for kind in ("none", "delta", "snapshot")]
    opened = ("notifier_streams_opened_total", {"transport": "detached"})
    moved = Moved(*kinds, ("notifier_reconnects_total", {}), ("notifier_resume_failures_total", {}), opened)
    await notifier.begin()
    client = await notifier.listen()
    await wait_until(lambda: client.last_id)
    began = client.last_id or ""
    await notifier.show(line(11, 6))
    await wait_until(lambda: client.last_id != began)
    for last_event_id in (began, client.last_id or "", "1.77"):
        back = await notifier.listen(last_event_id=last_event_id)
        await wait_until(partial(getattr, back, "retries"))
    assert moved.by("notifier_reconnects_total") == 3
    assert moved.by("notifier_resume_failures_total") == 1
    assert moved.by("notifier_replays_total", kind="none") == 1
    assert moved.by("notifier_replays_total", kind="delta") == 1
    assert moved.by("notifier_replays_total", kind="snapshot") == 2
    assert moved.by(opened[0], **opened[1]) == 4


async def test_rejected_and_ended_streams_are_counted(start: Start):
    moved = Moved(
        ("notifier_streams_rejected_total", {"reason": "full"}), ("notifier_streams_ended_total", {"reason": "left"})
    )
    notifier = await start(streams_max=1)
    client = await notifier.listen()
    await wait_until(lambda: value("notifier_streams_open", kind="event") == 1)
    late = await notifier.listen(token=fan(2))
    await wait_until(lambda: late.closed)
    assert moved.by("notifier_streams_rejected_total", reason="full") == 1
    await client.close()
    await wait_until(lambda: moved.by("notifier_streams_ended_total", reason="left") == 1)


async def test_a_busy_loop_and_a_collection_are_noticed(start: Start):
    moved = Moved(("notifier_loop_lag_seconds_count", {}), ("notifier_loop_lag_seconds_sum", {}))
    notifier = await start(heartbeat_s=0.15)
    await wait_until(lambda: moved.by("notifier_loop_lag_seconds_count") > 3)
    asyncio.get_running_loop().call_soon(busy, 0.2)
    await wait_until(lambda: moved.by("notifier_loop_lag_seconds_sum") > 0.15)
    assert notifier.state.hub.settings.heartbeat_s == 0.15


def busy(seconds: float) -> None:
    clock = asyncio.get_running_loop().time
    until_s = clock() + seconds
    while clock() < until_s:
        pass


def test_runs_of_the_garbage_collector_are_timed():
    moved = Moved(("notifier_gc_pause_seconds_count", {}))
    known = len(gc.callbacks)
    with time_gc():
        gc.collect()
    assert moved.by("notifier_gc_pause_seconds_count") >= 1
    assert len(gc.callbacks) == known
