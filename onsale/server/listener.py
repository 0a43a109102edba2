"""An address that this process listens on, bound before it is served, and how connections to it are accepted. Imports
no server.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onsale.errors import OperatorError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

STOP_S = 3
ACCEPTED_AT_ONCE_MAX = 256
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Listener:
    """An app on an address. If `shared`, other processes listen there too, and the kernel distributes connections."""

    app: "ASGIApp"
    host: str
    port: int
    shared: bool = False
    grace_s: float = STOP_S

    def bind(self) -> socket.socket:
        """A socket on the address. It refuses connections until `listen`, so that no load balancer counts it too early.
        Raises `OperatorError` when the port is used.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((self.host, self.port))
        except OSError as taken:
            bound.close()
            raise OperatorError(f"Port {self.port} on {self.host} cannot be used: {taken.strerror}.") from taken
        bound.setblocking(False)
        return bound


class Acceptor:
    """Accepts connections to a listening socket, many in one turn of the event loop.

    uvloop itself accepts one a turn. The turns of a busy process are long, so newcomers waited for half a minute while
    those who were connected already were served.
    """

    def __init__(self, listening: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listening, self._protocol = listening, protocol
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[object]] = set()
        self._go_on()

    def close(self) -> None:
        """Refuses connections from now on; those that were accepted stay."""
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _go_on(self) -> None:
        if self._listening.fileno() >= 0:  # it may have been closed in a pause
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left: the connection waits until there is one again
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE_S, self._go_on)
                return
            connection.setblocking(False)
            begun = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
            self._beginning.add(begun)
            begun.add_done_callback(self._beginning.discard)
