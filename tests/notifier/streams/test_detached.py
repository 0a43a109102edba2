"""The parts of uvicorn that the detached transport relies on, and the fallback to ASGI with an untested version."""

import asyncio
import gc
import hashlib
import inspect
import socket
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.notifier.settings import Settings
from services.notifier.streams import asgi, detached
from services.notifier.streams.asgi import AsgiStream
from services.notifier.streams.detached import DetachedStream
from services.notifier.streams.handshake import StreamHandshake
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from services.notifier.tuning import Tuning
from shared.runtime.descriptors import descriptors_open
from tests.notifier.client import all_have_head, raw_request
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import line_frame
from tests.notifier.page import update_line
from tests.notifier.streams.test_slow_reader import UnreadStream
from tests.notifier.tokens import queue_token
from tests.support.running.serving import serve
from tests.support.wait import wait_until

RELIED_ON = (
    HttpToolsProtocol.__init__, HttpToolsProtocol.connection_lost, HttpToolsProtocol._unset_keepalive_if_required,
    HttpToolsProtocol.handle_websocket_upgrade, HttpToolsProtocol.on_headers_complete,
    HttpToolsProtocol._start_asgi_task, HttpToolsProtocol.on_response_complete, HttpToolsProtocol.shutdown,
    RequestResponseCycle.__init__, RequestResponseCycle.run_asgi, RequestResponseCycle.send,
    RequestResponseCycle.receive, FlowControl.resume_reading,
)  # fmt: skip
TESTED_HASH = "8734502010e98fec"


def test_the_internals_of_uvicorn_are_the_tested_ones():
    assert uvicorn.__version__ in detached.TESTED_VERSIONS, (
        "This uvicorn was not tested: streams fall back to ASGI. Read services/notifier/streams/detached.py with the "
        "code named in RELIED_ON, run these tests, then add the version to TESTED_VERSIONS."
    )
    code = "".join(inspect.getsource(part) for part in RELIED_ON)
    assert hashlib.sha256(code.encode()).hexdigest()[:16] == TESTED_HASH, (
        "The code in RELIED_ON has changed, although this version of uvicorn was tested."
    )


def live_objects_of(state: Any) -> list[object]:
    """Protocols and request cycles of the server with this state."""
    objects = gc.get_objects()
    protocols = [each for each in objects if isinstance(each, HttpToolsProtocol) and each.server_state is state]
    cycles = (each for each in objects if isinstance(each, RequestResponseCycle))
    return [*protocols, *(cycle for cycle in cycles if cycle.default_headers is state.default_headers)]


async def test_a_detached_stream_keeps_no_object_of_its_request(notifier: Notifier, caplog: Any):
    gc.collect()
    gc.disable()  # so that a reference cycle would stay, and be found
    try:
        clients = [await notifier.connect(token=queue_token(n)) for n in range(5)]
        state = notifier.serving.server.server_state
        await wait_until(lambda: not state.tasks)
        assert not state.connections
        assert all(isinstance(connection, DetachedStream) for connection in notifier.state.hub)
        await wait_until(lambda: live_objects_of(state) == [])
    finally:
        gc.enable()
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: all_have_head(clients, 6))
    for client in clients:
        await client.close()
    await wait_until(lambda: len(notifier.state.hub) == 0)
    assert not caplog.records, "the server logged no error"


async def test_an_untested_uvicorn_serves_streams_by_asgi(start: Start, monkeypatch: pytest.MonkeyPatch, caplog: Any):
    monkeypatch.setattr(uvicorn, "__version__", "99.0")
    notifier = await start()
    assert [record.getMessage() for record in caplog.records].count("transport.fallback") == 1
    await notifier.connect()
    assert [type(connection) for connection in notifier.state.hub] == [AsgiStream]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
async def test_a_request_that_cannot_be_detached_is_served_by_asgi(notifier: Notifier, version: str):
    """A client with HTTP/1.0, and one that has already sent its next request on the same connection."""
    next_request = raw_request(queue_token(1), "/livez") if version == "HTTP/1.1" else b""
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(queue_token(1), version=version) + next_request)
    async with asyncio.timeout(5):
        await reader.readuntil(b"event: sections")
    assert [type(connection) for connection in notifier.state.hub] == [AsgiStream]
    writer.close()


async def test_a_listener_that_sends_data_is_disconnected(notifier: Notifier):
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(queue_token(1)))
    async with asyncio.timeout(5):
        await reader.readuntil(b"event: sections")
        writer.write(b"and another thing")
        assert (await reader.read()).endswith(b"\n\n\r\n0\r\n\r\n")
    assert len(notifier.state.hub) == 0
    writer.close()


@pytest.mark.parametrize("transport_class", [DetachedStream, AsgiStream])
def test_under_uvloop_a_client_that_does_not_read_is_skipped_and_disconnected(transport_class: type[Any]):
    """uvloop's transports are not `asyncio.Transport`, but have the methods that the streams use."""
    results: list[object] = []
    tuning = Tuning(socket_buffer_bytes=8192)

    async def run() -> None:
        hub, topic = Hub(Settings(), tuning), Topic("event", now_s=0.0)
        update_line(topic, "x" * 8192)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            serve_stream = detached.serve if transport_class is DetachedStream else asgi.serve
            await serve_stream(
                StreamHandshake(
                    hub=hub, topic=topic, scope=scope, receive=receive, send=send, on_end=lambda: results.append("left")
                )
            )

        serving = await serve(app)
        slow_reader = UnreadStream(serving.port, raw_request("x"))
        await wait_until(lambda: len(hub) == 1)
        (connection,) = hub
        results.append(type(connection))
        await wait_until(lambda: hub.write(connection, topic.snapshot()) is False, interval_s=0)
        assert hub.paused == {connection}
        hub.disconnect(connection, reason="slow")
        await wait_until(slow_reader.is_disconnected)
        slow_reader.socket.close()
        await serving.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    assert results == [transport_class, "left"]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_head_comes_before_the_first_frame_and_an_ended_stream_leaves_no_descriptor(loop_factory: Any):
    async def run() -> None:
        hub, topic = Hub(Settings()), Topic("event", now_s=0.0)
        update_line(topic, "news")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await detached.serve(
                StreamHandshake(hub=hub, topic=topic, scope=scope, receive=receive, send=send, on_end=lambda: None)
            )

        serving = await serve(app)
        before = descriptors_open()
        for end in (hub.close, hub.disconnect):
            reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            writer.write(raw_request("x"))
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
                assert b"retry: " in await reader.readuntil(b"news")
                (connection,) = hub
                assert type(connection) is DetachedStream
                end(connection, reason="left")
                assert (await reader.read()).endswith(b"0\r\n\r\n") is (end == hub.close)
            writer.close()
            await wait_until(lambda: descriptors_open() == before)
        await serving.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


async def test_a_stream_is_not_ended_in_the_middle_of_a_chunk():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    hub, topic = Hub(Settings()), Topic("event", now_s=0.0)
    update_line(topic, "x" * 10_000_000)
    with theirs:
        hub.open(DetachedStream(hub, ours.detach(), lambda: None), topic, last_event_id=None)
        (connection,) = hub
        received = theirs.recv(1 << 16)  # room for an end
        hub.close(connection)
        received += b"".join(iter(lambda: theirs.recv(1 << 20), b""))
    assert 0 < len(received) < 10_000_000
    assert not received.endswith(b"0\r\n\r\n")
