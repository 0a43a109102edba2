"""The one port of `onsale up`: it routes as a load balancer does; only operators get metrics and readiness.

All listeners of a process have the right date, and an end or a start that fails leaves nothing behind.

Connections are accepted many at a time, however long the turns of the event loop are, and refused after the end.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar

import httpx
import pytest
import uvloop
from httpx import ASGITransport, AsyncClient, Response
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from onsale.errors import OperatorError
from onsale.local.ports import HOST, free_port
from onsale.server import command, serve
from onsale.server.one_port import Acceptor, Listener, OnePort
from onsale.server.serve import merged
from shared.security.auth import AdminKeys
from shared.web.answers import Answer
from tests.support.wait import wait_until

KEY = "k" * 24
STRANGER, LOCAL = "203.0.113.9", "127.0.0.1"
GUARDED = ("/readyz", "/gateway/readyz", "/gateway/metrics")


class Gateway:
    """The app of a service; it counts how often it is asked whether it is ready."""

    def __init__(self, status: int = 200) -> None:
        self.checks, self.status = 0, status

    def begin(self, scope: Scope, receive: Receive) -> Answer:
        self.checks += scope["path"] == "/readyz"
        return Answer(self.status, b"public " + scope["path"].encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(scope, receive)(scope, receive, send)


async def get(
    path: str, peer: str = LOCAL, headers: Mapping[str, str] = {}, *,
    gateway: Gateway | None = None, waits_for: tuple[str, ...] = (),
) -> Response:  # fmt: skip
    async def metrics() -> bytes:
        return b"metrics of all"

    service: Any = gateway or Gateway()
    port = OnePort(
        {"gateway": service}, AdminKeys(f"ops:viewer:{KEY}"), started=lambda: list(waits_for), metrics=metrics
    )
    async with AsyncClient(transport=ASGITransport(port, client=(peer, 1)), base_url="http://x") as client:
        return (await asyncio.gather(*(client.get(path, headers=dict(headers)) for _ in range(5))))[-1]


@pytest.mark.parametrize("path", GUARDED)
async def test_a_stranger_gets_neither_metrics_nor_readiness(path: str) -> None:
    assert (await get(path, STRANGER)).status_code == 404
    assert (await get(path, LOCAL, {"x-forwarded-for": STRANGER})).status_code == 404, "a proxy on this machine"
    assert (await get(path, STRANGER, {"x-forwarded-for": LOCAL})).status_code == 404
    assert (await get(path, STRANGER, {"authorization": "Bearer " + "x" * 24})).status_code == 404


@pytest.mark.parametrize("path", GUARDED)
async def test_an_operator_gets_metrics_and_readiness(path: str) -> None:
    assert (await get(path, LOCAL)).status_code == 200
    assert (await get(path, STRANGER, {"authorization": f"Bearer {KEY}"})).status_code == 200


async def test_each_request_goes_where_the_table_says() -> None:
    assert (await get("/gateway/metrics")).text == "metrics of all"
    assert (await get("/gateway/livez", STRANGER)).text == "public /gateway/livez"
    assert (await get("/events/show/queue", STRANGER)).text == "public /events/show/queue"
    assert (await get("/livez", STRANGER)).json() == {"live": True}
    assert (await get("/metrics")).status_code == 404
    assert (await get("/console/")).status_code == 404, "of a service that is not here"


async def test_the_suite_is_ready_when_its_services_are_and_it_has_started() -> None:
    gateway = Gateway()
    assert (await get("/readyz", gateway=gateway)).json()["ready"]
    assert gateway.checks == 1, "readiness is kept for a moment"
    assert (await get("/readyz", gateway=Gateway(503))).json()["failing"] == ["gateway"]
    waiting = await get("/readyz", waits_for=("event files",))
    assert (waiting.status_code, waiting.json()["failing"]) == (503, ["event files"])


ONE = """# HELP joins_total Joins.
# TYPE joins_total counter
joins_total{outcome="joined"} 3.0
joins_total{outcome="a {b} c"} 1.0
# HELP lag Lag.
# TYPE lag histogram
lag_bucket{le="1"} 2.0
lag_count 2.0
"""
TWO = """# HELP joins_total Joins.
# TYPE joins_total counter
joins_total{outcome="joined"} 4.0
# HELP only_here Only here.
# TYPE only_here gauge
only_here 7.0
"""


def test_metrics_of_several_processes_are_one_text() -> None:
    text = merged({"suite-1": ONE, "suite-2": TWO})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE joins_total") == 1, "a family stands in one place"
    joined = {s.labels["process"]: s.value for s in families["joins"].samples if s.labels["outcome"] == "joined"}
    assert joined == {"suite-1": 3.0, "suite-2": 4.0}
    assert [sample.labels for sample in families["lag"].samples] == [
        {"process": "suite-1", "le": "1"}, {"process": "suite-1"},
    ]  # fmt: skip
    assert families["only_here"].samples[0].labels == {"process": "suite-2"}


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await Answer(200, b"{}")(scope, receive, send)


async def test_the_service_of_a_feature_that_is_switched_off_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONSALE_FEATURES_OFF", "console")
    assert list(serve.create(("console", "gateway"))) == ["gateway"]
    with pytest.raises(OperatorError, match="ONSALE_FEATURES_OFF leaves out console"):
        await command._serve(["console"])


async def test_every_listener_sends_the_date_and_goes_on_doing_so(monkeypatch: pytest.MonkeyPatch) -> None:
    dates: list[str] = []

    def next_date(*, usegmt: bool) -> str:
        dates.append(f"date {len(dates)}")
        return dates[-1]

    monkeypatch.setattr(serve, "formatdate", next_date)
    monkeypatch.setattr(serve, "DATE_S", 0.05)
    listeners = [Listener(hello, HOST, free_port()) for _ in range(2)]
    async with serve.running({}, listeners, {}), httpx.AsyncClient(trust_env=False) as client:
        for at_least in (1, 3):
            await wait_until(lambda: len(dates) >= at_least)  # noqa: B023 - it is awaited here
            for listener in listeners:
                answer = await client.get(f"http://{HOST}:{listener.port}/")
                assert dates.index(answer.headers["date"]) >= at_least - 1
    ended = len(dates)
    await asyncio.sleep(0.1)
    assert len(dates) == ended, "the clock has ended"


async def test_a_request_that_outlasts_the_grace_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    listener = Listener(endless, HOST, free_port(), grace_s=0.2)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(5), serve.running({}, [listener], {}):
            reader, writer = await asyncio.open_connection(HOST, listener.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await began.wait()
        await asyncio.wait_for(cancelled.wait(), 1)
    assert "requests.cancelled" in caplog.messages
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_a_start_that_is_broken_off_serves_nobody() -> None:
    listeners = [Listener(hello, HOST, free_port()) for _ in range(2)]
    first, second = (listener.bind() for listener in listeners)
    second.close()  # so that it cannot listen
    with closing(serve.Server()) as server, pytest.raises(OSError, match="Bad file descriptor"):
        async with server.answering([(listeners[0], first), (listeners[1], second)]):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, listeners[0].port))


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
