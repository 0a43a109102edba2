"""Head and body of an answer are sent in one write; a head without a body yet is sent in the next loop iteration."""

import asyncio

import pytest

from onsale.server.uvicorn_protocol import DelayedHead

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class RecordingTransport:
    """Records each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.writes.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.writes


@pytest.fixture
def transport() -> RecordingTransport:
    return RecordingTransport()


async def test_head_and_body_are_one_write(transport: RecordingTransport):
    delayed = DelayedHead(transport)
    for _ in range(2):
        delayed.write(HEAD)
        delayed.write(BODY)
    await asyncio.sleep(0)
    assert transport.writes == [HEAD + BODY, HEAD + BODY]


async def test_a_streams_head_is_sent_in_the_next_iteration_and_its_frames_at_once(transport: RecordingTransport):
    delayed = DelayedHead(transport)
    delayed.write(HEAD)
    assert transport.writes == []
    await asyncio.sleep(0)
    assert transport.writes == [HEAD]
    delayed.write(BODY)
    assert transport.writes == [HEAD, BODY]


async def test_closing_sends_a_delayed_head(transport: RecordingTransport):
    delayed = DelayedHead(transport)
    delayed.write(HEAD)
    delayed.close()
    assert transport.writes == [HEAD, b"closed"]
    assert delayed.is_closing()


async def test_an_empty_body_sends_the_head_at_once(transport: RecordingTransport):
    delayed = DelayedHead(transport)
    delayed.write(HEAD)
    delayed.write(b"")
    delayed.write(HEAD)
    delayed.write(BODY)
    await asyncio.sleep(0)
    assert transport.writes == [HEAD, HEAD + BODY]
