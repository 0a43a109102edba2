"""Every metric of the streams counts what its name says, and is documented in docs/streams.md."""

import asyncio
import gc
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from services.notifier import metrics
from services.notifier.broadcast.heartbeat_timer import time_gc
from tests.notifier.client import all_have_head
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import line_frame
from tests.notifier.streams.test_slow_reader import UnreadStream, flood
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

GUIDE = Path(__file__).parents[3] / "docs" / "streams.md"
NAMES = [
    metric._name + ("_total" if metric._type == "counter" else "")
    for metric in vars(metrics).values()
    if isinstance(metric, Counter | Gauge | Histogram)
]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


class Increase:
    """By how much metric samples have grown since this was created."""

    def __init__(self, *samples: tuple[str, dict[str, str]]) -> None:
        self._before = {(name, *sorted(labels.items())): value(name, **labels) for name, labels in samples}

    def of(self, name: str, **labels: str) -> float:
        return value(name, **labels) - self._before[(name, *sorted(labels.items()))]


@pytest.mark.parametrize("name", NAMES)
def test_each_metric_is_documented(name: str):
    assert f"`{name}`" in GUIDE.read_text()


async def test_event_age_and_fan_out_are_measured_once_for_each_frame(notifier: Notifier):
    event = {"kind": "event"}
    names = ("event_age_seconds_count", "event_age_seconds_sum", "fan_out_seconds_count", "frames_written_total")
    increase = Increase(*((f"notifier_{name}", event) for name in names))
    clients = [await notifier.connect(token=queue_token(n)) for n in range(3)]
    old = line_frame(11, 6).model_copy(update={"at_ms": line_frame(1).at_ms - 1_500})
    await notifier.publish(old)
    await wait_until(lambda: all_have_head(clients, 6))
    assert increase.of("notifier_event_age_seconds_count", **event) == 1
    assert 1.5 <= increase.of("notifier_event_age_seconds_sum", **event) < 3
    assert increase.of("notifier_fan_out_seconds_count", **event) == 1
    assert increase.of("notifier_frames_written_total", **event) == 3


async def test_frames_that_wait_for_a_window_are_counted_as_conflated(start: Start):
    increase = Increase(("notifier_frames_conflated_total", {"kind": "event"}))
    notifier = await start(window_ms=200)
    client = await notifier.connect()
    for head_seq in range(6, 16):
        await notifier.publish(line_frame(head_seq + 5, head_seq))
    await wait_until(lambda: client.head_seq == 15)
    assert 7 <= increase.of("notifier_frames_conflated_total", kind="event") <= 9


async def test_a_slow_reader_is_counted_as_paused_skipped_and_ended(start: Start):
    increase = Increase(
        ("notifier_frames_skipped_total", {"kind": "event"}), ("notifier_streams_ended_total", {"reason": "slow"})
    )
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, slow_reader_max_s=1.0, heartbeat_s=1)
    slow_reader = UnreadStream(notifier.port, queue_token(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1012))
    assert value("notifier_streams_paused") == 1
    await wait_until(lambda: increase.of("notifier_streams_ended_total", reason="slow") == 1)
    assert increase.of("notifier_frames_skipped_total", kind="event") > 2
    assert value("notifier_streams_paused") == 0
    slow_reader.socket.close()


async def test_reconnects_are_counted_by_the_kind_of_their_replay(notifier: Notifier):
    kinds = [("notifier_replays_total", {"kind": kind}) for kind in ("none", "delta", "snapshot")]
    opened = ("notifier_streams_opened_total", {"transport": "detached"})
    increase = Increase(*kinds, ("notifier_reconnects_total", {}), ("notifier_resume_failures_total", {}), opened)
    await notifier.publish_initial()
    client = await notifier.listen()
    await wait_until(lambda: client.last_id)
    first_id = client.last_id or ""
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: client.last_id != first_id)
    for last_event_id in (first_id, client.last_id or "", "1.77"):
        back = await notifier.listen(last_event_id=last_event_id)
        await wait_until(partial(getattr, back, "retries"))
    assert increase.of("notifier_reconnects_total") == 3
    assert increase.of("notifier_resume_failures_total") == 1
    assert increase.of("notifier_replays_total", kind="none") == 1
    assert increase.of("notifier_replays_total", kind="delta") == 1
    assert increase.of("notifier_replays_total", kind="snapshot") == 2
    assert increase.of(opened[0], **opened[1]) == 4


async def test_rejected_and_ended_streams_are_counted(start: Start):
    increase = Increase(
        ("notifier_streams_rejected_total", {"reason": "full"}), ("notifier_streams_ended_total", {"reason": "left"})
    )
    notifier = await start(streams_max=1)
    client = await notifier.listen()
    await wait_until(lambda: value("notifier_streams_open", kind="event") == 1)
    late = await notifier.listen(token=queue_token(2))
    await wait_until(lambda: late.closed)
    assert increase.of("notifier_streams_rejected_total", reason="full") == 1
    await client.close()
    await wait_until(lambda: increase.of("notifier_streams_ended_total", reason="left") == 1)


async def test_the_lag_of_a_blocked_event_loop_is_measured(start: Start):
    increase = Increase(("notifier_loop_lag_seconds_count", {}), ("notifier_loop_lag_seconds_sum", {}))
    notifier = await start(heartbeat_s=0.15)
    await wait_until(lambda: increase.of("notifier_loop_lag_seconds_count") > 3)
    asyncio.get_running_loop().call_soon(block_loop, 0.2)
    await wait_until(lambda: increase.of("notifier_loop_lag_seconds_sum") > 0.15)
    assert notifier.state.hub.settings.heartbeat_s == 0.15


def block_loop(seconds: float) -> None:
    clock = asyncio.get_running_loop().time
    until_s = clock() + seconds
    while clock() < until_s:
        pass


def test_runs_of_the_garbage_collector_are_timed():
    increase = Increase(("notifier_gc_pause_seconds_count", {}))
    callbacks_before = len(gc.callbacks)
    with time_gc():
        gc.collect()
    assert increase.of("notifier_gc_pause_seconds_count") >= 1
    assert len(gc.callbacks) == callbacks_before
