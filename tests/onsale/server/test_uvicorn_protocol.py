"""Head and body of an answer leave together; a head whose body is not there yet does not wait for it."""

import asyncio

import pytest

from onsale.server.uvicorn_protocol import DelayedHead

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class Wire:
    """What a transport was told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.told


@pytest.fixture
def wire() -> Wire:
    return Wire()


async def test_an_answer_is_one_write(wire: Wire):
    transport = DelayedHead(wire)
    for _ in range(2):
        transport.write(HEAD)
        transport.write(BODY)
    await asyncio.sleep(0)
    assert wire.told == [HEAD + BODY, HEAD + BODY]


async def test_a_streams_head_goes_in_the_next_turn_and_its_frames_at_once(wire: Wire):
    transport = DelayedHead(wire)
    transport.write(HEAD)
    assert wire.told == []
    await asyncio.sleep(0)
    assert wire.told == [HEAD]
    transport.write(BODY)
    assert wire.told == [HEAD, BODY]


async def test_closing_sends_what_waits(wire: Wire):
    transport = DelayedHead(wire)
    transport.write(HEAD)
    transport.close()
    assert wire.told == [HEAD, b"closed"]
    assert transport.is_closing()


async def test_an_answer_without_a_body_is_whole_too(wire: Wire):
    transport = DelayedHead(wire)
    transport.write(HEAD)
    transport.write(b"")
    transport.write(HEAD)
    transport.write(BODY)
    await asyncio.sleep(0)
    assert wire.told == [HEAD, HEAD + BODY]
