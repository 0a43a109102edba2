"""Connections are accepted many at a time, however long the turns of the event loop are, and refused after the end."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import ClassVar

import pytest
import uvloop

from onsale.server.listener import Acceptor

CLIENTS, TURNS = 100, 10


class Connected(asyncio.Protocol):
    """Keeps the connections that were made."""

    made: ClassVar[list[asyncio.BaseTransport]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.append(transport)

    @classmethod
    async def end(cls) -> None:
        for transport in cls.made:
            transport.close()
        await turns()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A listening socket with connections that nobody has accepted yet."""
    Connected.made.clear()
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as bound:
        bound.setblocking(False)
        clients = [socket.create_connection(bound.getsockname()) for _ in range(CLIENTS)]
        yield bound
        for client in clients:
            client.close()


async def turns(count: int = TURNS) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_crowd_is_accepted_in_a_few_turns_of_the_loop(listening: socket.socket) -> None:
    """uvloop's own server would have accepted ten of a hundred."""

    async def accept() -> None:
        acceptor = Acceptor(listening, Connected)
        await turns()
        assert len(Connected.made) == CLIENTS
        nodelay = Connected.made[0].get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert nodelay, "a small answer is sent at once"
        acceptor.close()
        await Connected.end()

    address = listening.getsockname()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(accept())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


class WithoutDescriptors(socket.socket):
    """No connection can be accepted, as there is no descriptor for it."""

    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        raise OSError(errno.EMFILE, "Too many open files")


async def test_without_a_descriptor_it_tries_again_a_little_later() -> None:
    with WithoutDescriptors() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        bound.setblocking(False)
        with socket.create_connection(bound.getsockname()):
            acceptor = Acceptor(bound, Connected)
            await asyncio.sleep(0.05)
            assert bound.asked == 1, "it does not try all the time"
            await asyncio.sleep(0.1)
            assert bound.asked == 2
            acceptor.close()
            await asyncio.sleep(0.15)
            assert bound.asked == 2
