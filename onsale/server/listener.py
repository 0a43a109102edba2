"""An address that this process listens on, bound before it is served. Imports no server."""

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onsale.errors import OperatorError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

STOP_S = 3


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
