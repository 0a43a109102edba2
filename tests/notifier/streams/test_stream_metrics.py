"""Every metric of the streams counts what its name says."""

from functools import partial

from prometheus_client import REGISTRY

from tests.notifier.client import all_have_head
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import line_frame
from tests.notifier.streams.test_slow_reader import SlowReader, flood, slow_reader
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

__all__ = ["slow_reader"]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"notifier_{name}", labels) or 0.0


class Increase:
    """By how much metric samples have grown since this was created."""

    def __init__(self) -> None:
        samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
        self._before = {(each.name, *sorted(each.labels.items())): each.value for each in samples}

    def of(self, name: str, **labels: str) -> float:
        return value(name, **labels) - self._before.get((f"notifier_{name}", *sorted(labels.items())), 0.0)


async def test_event_age_and_fan_out_are_measured_once_for_each_frame(notifier: Notifier):
    increase = Increase()
    clients = [await notifier.connect(token=queue_token(n)) for n in range(3)]
    old = line_frame(11, 6).model_copy(update={"at_ms": line_frame(1).at_ms - 1_500})
    await notifier.publish(old)
    await wait_until(lambda: all_have_head(clients, 6))
    counts = ("event_age_seconds_count", "fan_out_seconds_count", "frames_written_total")
    assert [increase.of(name, kind="event") for name in counts] == [1, 1, 3]
    assert 1.5 <= increase.of("event_age_seconds_sum", kind="event") < 3


async def test_frames_that_wait_for_a_window_are_counted_as_conflated(start: Start):
    notifier, increase = await start(window_ms=200), Increase()
    client = await notifier.connect()
    for head_seq in range(6, 16):
        await notifier.publish(line_frame(head_seq + 5, head_seq))
    await wait_until(lambda: client.head_seq == 15)
    assert 7 <= increase.of("frames_conflated_total", kind="event") <= 9


async def test_a_slow_reader_is_counted_as_paused_skipped_and_ended(slow_reader: SlowReader):
    increase = Increase()
    notifier, _, client = await slow_reader(slow_reader_max_s=1.0, heartbeat_s=1)
    await flood(notifier, client, range(1000, 1012))
    assert value("streams_paused") == 1
    await wait_until(lambda: increase.of("streams_ended_total", reason="slow") == 1)
    assert increase.of("frames_skipped_total", kind="event") > 2
    assert value("streams_paused") == 0


async def test_reconnects_are_counted_by_the_kind_of_their_replay(notifier: Notifier):
    increase = Increase()
    client = await notifier.listen()
    await wait_until(lambda: client.last_id)
    first_id = client.last_id or ""
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: client.last_id != first_id)
    for last_event_id in (first_id, client.last_id or "", "1.77"):
        back = await notifier.listen(last_event_id=last_event_id)
        await wait_until(partial(getattr, back, "retries"))
    assert [increase.of("replays_total", kind=kind) for kind in ("none", "delta", "snapshot")] == [1, 1, 2]
    assert [increase.of(name) for name in ("reconnects_total", "resume_failures_total")] == [3, 1]
    assert increase.of("streams_opened_total", transport="detached") == 4


async def test_rejected_and_ended_streams_are_counted(start: Start):
    notifier, increase = await start(streams_max=1), Increase()
    client = await notifier.listen()
    await wait_until(lambda: value("streams_open", kind="event") == 1)
    late = await notifier.listen(token=queue_token(2))
    await wait_until(lambda: late.closed)
    assert increase.of("streams_rejected_total", reason="full") == 1
    await client.close()
    await wait_until(lambda: increase.of("streams_ended_total", reason="left") == 1)
