"""Serves an ASGI app on loopback in the event loop of the test.

A self-signed TLS certificate for loopback.

Apps of services, used by one test after the other: to build the routes of an app takes longer than most tests.

What a test leaves behind is in the state that the lifespan opens, and goes with it.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from onsale.server.one_port import Listener
from onsale.server.serve import Server
from shared.process.settings import ServiceSettings
from shared.security.auth import WrongKeys
from tests.support.wait import wait_until


async def whole_body(receive: Receive) -> bytes:
    """The body of a request to a small app. Raises `ClientDisconnect`."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


class EmbeddedServer(uvicorn.Server):
    """Leaves signals to the test run, stops on an event instead of polling, and then as soon as nothing runs: uvicorn
    itself sleeps for a tenth of a second at least.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop_requested = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await wait_until(lambda: self.force_exit or not self._is_busy(), interval_s=0.001)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    def _is_busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Serving:
    """A server that the test stops, with or without waiting for open requests."""

    server: EmbeddedServer
    task: asyncio.Task[None]
    port: int

    async def stop(self, *, at_once: bool = False) -> None:
        self.server.force_exit = at_once
        self.server.stop_requested.set()
        await self.task


async def serve(app: Any, *, port: int = 0, graceful_s: int = 1) -> Serving:
    """Listens on a free port by default; the caller runs the lifespan."""
    config = uvicorn.Config(
        app, port=port, lifespan="off", log_config=None, access_log=False, ws="none",
        timeout_graceful_shutdown=graceful_s, date_header=False,  # without ticks it would be that of the start
    )  # fmt: skip
    server = EmbeddedServer(config)
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started, interval_s=0.001)
    return Serving(server, task, server.servers[0].sockets[0].getsockname()[1])


@asynccontextmanager
async def serving(app: Any, *, port: int = 0) -> AsyncIterator[int]:
    """The port on which the app answers until the end of the block."""
    served = await serve(app, port=port)
    try:
        yield served.port
    finally:
        await served.stop()


@asynccontextmanager
async def on_our_protocol(app: Any) -> AsyncIterator[tuple[int, Server]]:
    """The app behind the protocol that services run on: its port, and the server."""
    listener = Listener(app, "127.0.0.1", 0)
    with contextlib.closing(listener.bind()) as bound, contextlib.closing(Server()) as server:
        async with server.answering([(listener, bound)]):
            yield bound.getsockname()[1], server


def self_signed(folder: Path) -> Path:
    """Writes `site.crt` and `site.key`; the path of the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    alternatives = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate = folder / "site.crt"
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "site.key").write_bytes(private)
    return certificate


T = TypeVar("T")
KEPT_MAX = 8
_kept: dict[str, FastAPI] = {}


@contextmanager
def borrowed_app(create_app: Callable[..., FastAPI], settings: ServiceSettings, tuning: object) -> Iterator[FastAPI]:
    """An app with these settings that nobody else uses meanwhile. One that still works at the end, or whose keys a test
    has replaced, is not used again.
    """
    key = f"{create_app.__module__} {_values(settings)} {tuning!r}"
    app = _kept.pop(key, None) or create_app(settings, tuning)
    app.state.wrong_keys = WrongKeys()
    yield app
    load = app.state.load  # a gateway measures none
    works = load is not None and (load.looks.in_flight or load.purchases.to_do())
    if not works and key == f"{create_app.__module__} {_values(app.state.settings)} {tuning!r}":
        _kept[key] = app
    while len(_kept) > KEPT_MAX:
        del _kept[next(iter(_kept))]


def _values(settings: ServiceSettings) -> str:
    """All values, the secret ones too."""
    values = [value.get_secret_value() if isinstance(value, SecretStr) else value for _, value in settings]
    return f"{values!r} {settings.admin_keys.hashed()}"


def parted(tuning: type[T], given: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    """The tuning with those of the given fields that are its own, and the others, which are settings."""
    own = {field.name for field in fields(tuning)}  # type: ignore[arg-type]
    return tuning(**{n: v for n, v in given.items() if n in own}), {n: v for n, v in given.items() if n not in own}
