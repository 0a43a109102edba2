"""The load generator against a small real server: its figures are those of the server.

A share of a core: within it a busy process gets no more, and the control group is gone afterwards.

A small night runs whole on the real suite.
"""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.harness.load import Load, drive, request, run_in_process
from bench.harness.measurement import CheckFailed, Effort, Testbed
from bench.night.__main__ import night, parse_options
from bench.scale.core_share import core_share
from bench.scale.fleets import run_load
from bench.streams.listeners import ListenerGroup, connect_listeners
from onsale.local.ports import HOST
from tests.support.wait import wait_until

HELLO = request("GET", "/hello")
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 11\r\n\r\nhello there"
SOLD_OUT = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno"
GONE = b"HTTP/1.1 204 No Content\r\n\r\n"


class Server:
    """Answers the n-th request with `answer(n)`, in two pieces; an empty answer hangs up."""

    def __init__(self, answer: Callable[[int], bytes], delay_s: float) -> None:
        self._answer, self._delay_s = answer, delay_s
        self.requests: list[bytes] = []
        self.connections: Counter[int] = Counter()  # by port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections[writer.get_extra_info("sockname")[1]] += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self._answer(len(self.requests))
                await asyncio.sleep(self._delay_s)
                if not answer:
                    break
                for piece in (answer[:30], answer[30:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except asyncio.IncompleteReadError:
            pass  # the client has finished
        finally:
            writer.close()


@asynccontextmanager
async def server(
    answer: Callable[[int], bytes], *, delay_s: float = 0
) -> AsyncIterator[tuple[Server, tuple[int, int]]]:
    """A server on two ports."""
    small = Server(answer, delay_s)
    one, two = [await asyncio.start_server(small.serve, HOST, 0) for _ in range(2)]
    async with one, two:
        yield small, (one.sockets[0].getsockname()[1], two.sockets[0].getsockname()[1])


async def test_every_answer_is_counted_once_with_its_status_and_body() -> None:
    answers = (SOLD_OUT, CREATED, GONE)
    async with server(lambda n: answers[n % 3]) as (small, (port, other)):
        result = await drive(Load(HOST, port, [HELLO], 4, 0.2, warm_up_s=0.05, repeat=True, more_ports=(other,)))
    assert result.statuses == Counter((409, 201, 204)[n % 3] for n in range(1, len(small.requests) + 1))
    assert result.created == [b"hello there"] * result.statuses[201]
    assert sorted(result.refused) == [b""] * result.statuses[204] + [b"no"] * result.statuses[409]
    assert (result.broken, small.connections) == (0, {port: 2, other: 2})


async def test_the_latency_is_the_wait_for_an_answer_and_the_warm_up_is_not_measured() -> None:
    async with server(lambda n: CREATED, delay_s=0.02) as (_, (port, _)):
        result = await drive(Load(HOST, port, [HELLO], 4, 0.3, warm_up_s=0.2, repeat=True))
    assert 19 <= min(result.latencies_ms) <= max(result.latencies_ms) < 5_000
    assert result.per_second == len(result.latencies_ms) / 0.3 <= 4 / 0.019
    assert result.statuses[201] - len(result.latencies_ms) >= 4


async def test_fans_with_a_pause_send_fewer_requests() -> None:
    async with server(lambda n: CREATED) as (_, (port, _)):
        result = await drive(Load(HOST, port, [HELLO], 2, 0.4, warm_up_s=0, repeat=True, pause_s=0.1))
    assert 1 <= result.statuses[201] <= 2 * 0.4 / 0.05


async def test_used_up_requests_and_missing_answers_are_reported() -> None:
    async with server(lambda n: CREATED) as (small, (port, _)):
        used_up = await drive(Load(HOST, port, [HELLO] * 7, 3, 5, warm_up_s=0))
    assert (used_up.ran_out, used_up.statuses, len(small.requests)) == (True, {201: 7}, 7)
    async with server(lambda n: CREATED if n < 5 else b"") as (small, (port, _)):
        missing = await drive(Load(HOST, port, [HELLO], 2, 5, warm_up_s=0, repeat=True))
    assert (missing.broken, missing.statuses) == (2, {201: len(small.requests) - 2})


async def test_the_load_generator_runs_in_its_own_process() -> None:
    body = b'{"seats": []}'
    async with server(lambda n: CREATED) as (small, (port, _)):
        result = await run_in_process(
            Load(HOST, port, [request("POST", "/x", body, user_agent="fan")], 1, 5, warm_up_s=0)
        )
    assert result.created == [b"hello there"]
    line, *fields = small.requests[0].splitlines()
    assert line == b"POST /x HTTP/1.1"
    assert {b"user-agent: fan", b"content-length: %d" % len(body)} <= set(fields)


async def test_one_answer_with_another_status_fails_the_measurement() -> None:
    async with server(lambda n: SOLD_OUT if n == 2 else CREATED) as (_, (port, _)):
        with pytest.raises(CheckFailed, match="answered otherwise"):
            await run_load([port], [HELLO], Effort(0.1, 1, 1), wanted=201)


async def test_listeners_report_received_frames_with_their_age() -> None:
    writers: list[asyncio.StreamWriter] = []
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writers.append(writer)

    async with await asyncio.start_server(serve, HOST, 0) as streams:
        port = streams.sockets[0].getsockname()[1]
        groups = [ListenerGroup("ours", port, "/x", 6), ListenerGroup("sse", port, "/x", 3)]
        async with connect_listeners(groups) as listeners:
            assert (len(writers), listeners.lost) == (9, 0)
            assert len({request for request in requests if b"authorization: Bearer " in request}) == 6
            for writer in writers:
                writer.write(b"data: @%d@\n\n" % (time.time_ns() - 2_000_000_000))
            received = Counter[int]()

            async def all_received() -> bool:
                for n, report in enumerate(await listeners.collect()):
                    received[n] += report["received"]
                    assert not report["received"] or 2_000 <= report["ages_ms"]["0.99"] < 60_000
                return received == {0: 6, 1: 3}

            await wait_until(all_received)
        for writer in writers:
            writer.close()


SHARE, SECONDS = 0.2, 0.5
SPIN = f"""
import time
input()
spent_s, end_s = time.process_time(), time.perf_counter() + {SECONDS}
while time.perf_counter() < end_s:
    pass
print(time.process_time() - spent_s)
"""


def _busy_s(*, limited: bool) -> float:
    """Processor seconds that a spinning process gets in `SECONDS`."""
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as spinning, core_share([spinning.pid] if limited else [], SHARE) as is_limited:  # fmt: skip
        if not is_limited:
            spinning.kill()
            pytest.skip("the kernel gives us no control group")
        return float(spinning.communicate("\n", timeout=30)[0])


def test_a_busy_process_gets_its_share_and_not_more() -> None:
    groups = set(Path("/sys/fs/cgroup").glob("**/onsale-bench-*"))
    assert _busy_s(limited=True) < 1.5 * SHARE * SECONDS
    assert _busy_s(limited=False) > 1.5 * SHARE * SECONDS, "without a limit it gets more, or this test shows nothing"
    assert set(Path("/sys/fs/cgroup").glob("**/onsale-bench-*")) == groups


def test_where_no_group_can_be_made_nothing_is_limited(tmp_path: Path) -> None:
    with core_share([1], SHARE, tmp_path / "missing") as limited:
        assert not limited


async def test_a_small_night_runs_whole(testbed: Testbed) -> None:
    ended = await night(testbed, parse_options(["--fans", "600", "--tickets", "12", "--minutes", "2"]))
    assert ended.failures == []
    figures = ended.figures()
    assert (figures["sold"], figures["fans"], figures["checkout_errors"]) == (12, 600, 0)
    assert figures["streams"] == 60
    assert figures["calls_ms"]["join"]["count"] >= 600
    assert {"gateway", "queue", "inventory", "orders", "notifier"} <= figures["cpu_s"].keys()
    assert 0 < figures["cpu_s_total"] < 600
    assert 0 < figures["sold_out_s"] <= figures["seconds"] + 1
    ET.fromstring(ended.picture())
