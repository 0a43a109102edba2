"""The servers of streams that are compared: our notifier with two transports, sse-starlette, WebSockets and nchan."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson

from bench.baselines.stub_services import EVENT, line_frame, stock_frame
from bench.harness.testbed import Trial
from bench.streams.listeners import ListenerGroup
from onsale.local.ports import HOST, free_port
from services.notifier.topics.frames import line_body
from shared.contracts.frames import FRAME_REPEAT_S, Frame, line_channel, stock_channel

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
MODULES = [Path(f"/usr/{part}/nginx/modules/ngx_nchan_module.so") for part in ("lib", "share")]
NCHAN = """\
load_module {module};
user root; worker_processes 1; worker_rlimit_nofile 20000; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 19000; }}
http {{
    nchan_shared_memory_size 128M; access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen {host}:{port} backlog=4096;
        location = /sub {{ nchan_subscriber eventsource; nchan_channel_id arena; nchan_message_buffer_length 20; }}
        location = /publish {{ nchan_publisher; nchan_channel_id arena; nchan_message_buffer_length 20; }}
        location = /readyz {{ return 200; }}
    }}
}}
"""


@dataclass(frozen=True)
class StreamServer:
    """A running server: its processes, its groups of listeners, and how to publish a message to all."""

    pids: list[int]
    groups: Callable[[int], list[ListenerGroup]]
    publish: Callable[[str], Awaitable[object]]


def nchan_module() -> Path | None:
    """The path of the nchan module, if it is installed."""
    return next((path for path in MODULES if path.exists() and Path(NGINX).exists()), None)


@asynccontextmanager
async def our_notifier(trial: Trial, transport: str, *, processes: int = 1) -> AsyncIterator[StreamServer]:
    """Real notifiers that receive messages by Pub/Sub as in a sale; the other services are stubs."""
    stub_url = f"http://{HOST}:{await trial.serve_textbook('stub_services')}"
    settings = {
        "ONSALE_REDIS_URL": trial.redis_url, "ONSALE_QUEUE_URL": stub_url, "ONSALE_INVENTORY_URL": stub_url,
        "NOTIFIER_TRANSPORT": transport, "ONSALE_LOG_REQUESTS": "false",
    }  # fmt: skip
    ports = []
    for n in range(processes):
        ports.append(free_port())
        name = f"notifier-{n}"
        await trial.serve(name, ["onsale", "serve", "notifier"], ports[n], {**settings, "NOTIFIER_PORT": str(ports[n])})
    pids = [trial.pids[f"notifier-{n}"] for n in range(processes)]
    version = iter(range(2, 1_000_000))
    async with trial.redis() as client, asyncio.TaskGroup() as tasks:
        latest: dict[str, Frame] = {line_channel(EVENT): line_frame(1, ""), stock_channel(EVENT): stock_frame()}

        async def publish(message: str) -> None:
            latest[line_channel(EVENT)] = frame = line_frame(next(version), message)
            await client.publish(line_channel(EVENT), frame.model_dump_json())

        async def repeat() -> None:
            """As queue and inventory do: a channel that is silent counts as away."""
            while True:
                await asyncio.sleep(FRAME_REPEAT_S)
                for channel, frame in latest.items():
                    await client.publish(channel, frame.model_dump_json())

        def groups(count: int) -> list[ListenerGroup]:
            share, path = count // processes, f"/events/{EVENT}/sections/updates"
            return [ListenerGroup("ours", port, path, share, n * share) for n, port in enumerate(ports)]

        repeating = tasks.create_task(repeat())
        yield StreamServer(pids, groups, publish)
        repeating.cancel()


@asynccontextmanager
async def plain(trial: Trial, kind: str) -> AsyncIterator[StreamServer]:
    """sse-starlette (`sse`) or WebSockets (`websocket`) on uvicorn, one process."""
    port = await trial.serve_textbook("plain_streams", UVICORN_WS_PING_INTERVAL="600")
    async with _publish_by_post(port) as publish:
        yield StreamServer(
            [trial.pids["plain_streams"]], lambda count: [ListenerGroup(kind, port, f"/{kind}", count)], publish
        )


@asynccontextmanager
async def nchan(trial: Trial) -> AsyncIterator[StreamServer]:
    """nginx with nchan, one worker."""
    port, folder = free_port(), trial.testbed.data_dir / f"nchan-{os.urandom(4).hex()}"
    folder.mkdir()
    conf = folder / "nginx.conf"
    conf.write_text(NCHAN.format(module=nchan_module(), folder=folder, host=HOST, port=port))
    process = await asyncio.create_subprocess_exec(NGINX, "-e", f"{folder}/error.log", "-c", str(conf))
    try:
        async with _publish_by_post(port) as publish:
            yield StreamServer([process.pid], lambda count: [ListenerGroup("sse", port, "/sub", count)], publish)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _publish_by_post(port: int) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    """The same bytes of data as ours, published over HTTP."""
    versions = iter(range(2, 1_000_000))
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=30) as client:
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    break
            except httpx.TransportError:
                await asyncio.sleep(0.05)

        async def publish(message: str) -> None:
            body = line_body(line_frame(next(versions), message), degraded=False)
            (await client.post("/publish", content=orjson.dumps(body))).raise_for_status()

        yield publish


SIDES: dict[str, Callable[[Trial], AbstractAsyncContextManager[StreamServer]]] = {
    "ours, detached": lambda trial: our_notifier(trial, "detached"),
    "ours, asgi": lambda trial: our_notifier(trial, "asgi"),
    "nchan": nchan,
    "sse-starlette": lambda trial: plain(trial, "sse"),
    "WebSockets": lambda trial: plain(trial, "websocket"),
}
