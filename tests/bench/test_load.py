"""The load generator against a small real server: its figures are those of the server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.harness.load import Load, drive, request, run_in_process
from onsale.local.ports import HOST

HELLO = request("GET", "/hello")
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 11\r\n\r\nhello there"
SOLD_OUT = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno"
GONE = b"HTTP/1.1 204 No Content\r\n\r\n"


class Server:
    """Answers the n-th request with `answer(n)`, in two pieces; an empty answer hangs up."""

    def __init__(self, answer: Callable[[int], bytes], delay_s: float) -> None:
        self._answer, self._delay_s = answer, delay_s
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
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
async def server(answer: Callable[[int], bytes], *, delay_s: float = 0) -> AsyncIterator[tuple[Server, int]]:
    small = Server(answer, delay_s)
    listening = await asyncio.start_server(small.serve, HOST, 0)
    async with listening:
        yield small, listening.sockets[0].getsockname()[1]


async def test_every_answer_is_counted_once_with_its_status_and_body() -> None:
    answers = (SOLD_OUT, CREATED, GONE)
    async with server(lambda n: answers[n % 3]) as (small, port):
        result = await drive(Load(HOST, port, [HELLO], 4, 0.2, warm_up_s=0.05, repeat=True))
    assert len(small.requests) > 10
    assert result.statuses == {status: sum(n % 3 == kind for n in range(1, len(small.requests) + 1))
                              for kind, status in enumerate((409, 201, 204))}  # fmt: skip
    assert result.created == [b"hello there"] * result.statuses[201]
    assert sorted(result.refused) == [b""] * result.statuses[204] + [b"no"] * result.statuses[409]
    assert result.latencies_ms
    assert result.broken == 0


async def test_the_latency_is_the_wait_of_a_connection_for_its_answer() -> None:
    async with server(lambda n: CREATED, delay_s=0.02) as (_, port):
        result = await drive(Load(HOST, port, [HELLO], 4, 0.3, warm_up_s=0, repeat=True))
    assert 19 <= min(result.latencies_ms) <= max(result.latencies_ms) < 5_000
    assert result.per_second <= 4 / 0.019
    assert result.per_second == len(result.latencies_ms) / 0.3


async def test_the_warm_up_is_counted_but_not_measured() -> None:
    async with server(lambda n: CREATED, delay_s=0.01) as (_, port):
        result = await drive(Load(HOST, port, [HELLO], 1, 0.1, warm_up_s=0.2, repeat=True))
    assert result.latencies_ms
    assert result.statuses[201] - len(result.latencies_ms) >= 3


async def test_a_used_up_list_of_requests_is_reported() -> None:
    async with server(lambda n: CREATED) as (small, port):
        result = await drive(Load(HOST, port, [HELLO] * 7, 3, 5, warm_up_s=0))
    assert result.ran_out
    assert result.statuses == {201: 7}
    assert len(small.requests) == 7


async def test_a_missing_answer_is_reported() -> None:
    async with server(lambda n: CREATED if n < 5 else b"") as (small, port):
        result = await drive(Load(HOST, port, [HELLO], 2, 5, warm_up_s=0, repeat=True))
    assert result.broken == 2
    assert result.statuses == {201: len(small.requests) - 2}


async def test_the_load_generator_runs_in_its_own_process() -> None:
    body = b'{"seats": []}'
    async with server(lambda n: CREATED) as (small, port):
        result = await run_in_process(
            Load(HOST, port, [request("POST", "/x", body, user_agent="fan")], 1, 5, warm_up_s=0)
        )
    assert result.created == [b"hello there"]
    assert small.requests[0].splitlines()[0] == b"POST /x HTTP/1.1"
    assert b"user-agent: fan" in small.requests[0]
    assert b"content-length: %d" % len(body) in small.requests[0]
