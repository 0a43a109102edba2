"""The HTTP/1.1 client: whole answers over reused connections, and `ConnectionLost` when one breaks."""

import asyncio

import pytest

from onsale.server.serve import KEEP_ALIVE_S
from shared.http import http1
from shared.http.http1 import IDLE_MAX_S, ConnectionLost, HttpClient

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhel"
GARBAGE = b"SMTP ready\r\n\r\n"


class Server:
    """Answers each request with the next of `answers`; an empty answer closes, None never answers."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers, self.connections = list(answers), 0
        self.requests: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    await reader.read()  # until the client leaves
                elif not answer or answer in (CUT, LAST):
                    writer.write(answer or b"")
                    await writer.drain()
                    return
                else:
                    writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def post(*raw: bytes | None, times: int = 1, timeout: float = 5):
    server = Server(*raw)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        async with HttpClient(connections_max=2) as client:
            answers = [
                await client.post(
                    f"http://127.0.0.1:{port}/a?b=c", content=b"body", headers={"x": "y"}, timeout=timeout
                )
                for _ in range(times)
            ]
        return server, answers
    finally:
        listening.close()


async def test_a_connection_that_its_server_may_be_closing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "IDLE_MAX_S", 0)
    server, answers = await post(WHOLE, WHOLE, times=2)
    assert [answer.content for answer in answers] == [b"hello", b"hello"]
    assert server.connections == 2
    assert KEEP_ALIVE_S - IDLE_MAX_S >= 10, "so long may the client be busy and not know that it was closed"


async def test_whole_answers_arrive_over_one_connection() -> None:
    server, answers = await post(WHOLE, CHUNKED, WHOLE, times=3)
    assert [(a.status_code, a.content) for a in answers] == [(200, b"hello"), (201, b"hello"), (200, b"hello")]
    assert answers[0].headers["x-a"] == "b"
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /a?b=c HTTP/1.1\r\nhost: 127.0.0.1")
    assert server.requests[0].endswith(b"x: y\r\n\r\nbody")


async def test_a_closed_connection_is_replaced() -> None:
    server, answers = await post(LAST, LAST, times=2)
    assert [a.content for a in answers] == [b"ok", b"ok"]
    assert server.connections == 2


@pytest.mark.parametrize("answer", [CUT, b"", GARBAGE])
async def test_a_broken_answer_is_a_lost_connection(answer) -> None:
    with pytest.raises(ConnectionLost):
        await post(answer)


async def test_a_refused_connection_is_a_lost_connection() -> None:
    async with HttpClient() as client:
        with pytest.raises(ConnectionLost):
            await client.post("http://127.0.0.1:9/", content=b"", headers={}, timeout=5)


async def test_a_late_answer_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await post(None, timeout=0.05)
