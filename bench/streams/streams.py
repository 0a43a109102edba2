"""P3: memory and processor time of a listener, and the age of a frame when the last listener receives it.

Our two transports, nchan, sse-starlette and WebSockets, one process each; then 50,000 idle listeners of ours.

The servers of streams that are compared: our notifier with two transports, sse-starlette, WebSockets and nchan.
"""

import asyncio
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

from bench.baselines.stub_services import EVENT, line_frame, stock_frame
from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed, Trial, cpu_s, descendants
from bench.streams.listeners import CONNECT_S, ConnectionsMissing, ListenerGroup, ListenerProcesses, connect_listeners
from features.reports.page import Line, line_plot
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


SIZES, QUICK_SIZES = (1_000, 5_000, 15_000), (50, 100)
FRAMES, QUICK_FRAMES = 6, 2
IDLE, QUICK_IDLE, IDLE_PROCESSES = 50_000, 60, 3
SETTLE_S, IDLE_CPU_S = 1.0, 3.0
HEADINGS = ("listeners", "held by", "KiB a listener", "µs of processor a frame", "age p50 ms", "p99 ms", "p99.9 ms",
            "connects/s")  # fmt: skip
OURS, PLOT = "ours, detached", Path(__file__).parents[2] / "docs" / "images" / "streams.svg"


@dataclass(frozen=True)
class StreamFigures:
    """One side's figures at one size."""

    size: int
    side: str
    kib: float
    frame_us: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    connects_per_s: float
    missed: int

    def row(self) -> tuple[str, ...]:
        ages = (f"{age:.0f}" for age in (self.p50_ms, self.p99_ms, self.p999_ms))
        return (
            f"{self.size:,}",
            self.side,
            f"{self.kib:.1f}",
            f"{self.frame_us:.1f}",
            *ages,
            f"{self.connects_per_s:,.0f}",
        )


def streams() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P3",
        title="what a listener costs",
        settings=[
            "One server process each; nchan one worker. Listeners are sockets on one epoll in a process of its own, "
            "connecting from 16 loopback addresses; medians of the rounds. "
            f"{FRAMES} frames of about 200 bytes a size, each told to all.",
            "Memory: growth of the server's PSS since its first listener had been there, by listeners. The "
            "kernel's part (about 4 KiB a socket, the same for all) is not in it.",
            "Processor: the server's time over all frames, publishing included, by frames delivered. Age: from "
            "publishing to the listener's read, which shares the machine's cores with the server.",
            "Ours carries a signed token, a limit and a sign of life for every listener; the others know nobody.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs the sides alternately; a plot goes into docs/ unless the run is a quick one."""
    sizes = QUICK_SIZES if effort.quick else SIZES
    sides = {name: start for name, start in SIDES.items() if name != "nchan" or nchan_module()}
    frames = QUICK_FRAMES if effort.quick else FRAMES
    rounds: dict[tuple[str, int], list[StreamFigures]] = {}
    checked: list[str] = []
    for side, start in [each for _ in range(effort.rounds) for each in sides.items()]:
        async with testbed.trial() as trial, start(trial) as server:
            fresh = await warmed_up(server)
            for size in sizes:
                try:
                    one = await measure(side, server, size, frames, fresh=fresh)
                except ConnectionsMissing:
                    checked.append(f"{side}: {size:,} listeners did not get in within {CONNECT_S:.0f} s")
                    break
                rounds.setdefault((side, size), []).append(one)
    found = [median_of(result) for result in rounds.values()]
    async with testbed.trial() as trial:
        idle_rows, idle_claim = await measure_idle(trial, QUICK_IDLE if effort.quick else IDLE)
    if not effort.quick:
        PLOT.write_text(plot(found))
    checked.append(f"{sum(one.missed for one in found):,} frames were missed by a listener, or conflated for one")
    if "nchan" not in sides:
        checked.append("nchan is not installed here (Debian: libnginx-mod-nchan), so it is not compared with")
    return Figures(HEADINGS, [*(one.row() for one in found), *idle_rows], [*claims(found), idle_claim], checked)


def median_of(rounds: list[StreamFigures]) -> StreamFigures:
    """The median of each figure; what was missed in any round was missed."""
    names = ("kib", "frame_us", "p50_ms", "p99_ms", "p999_ms", "connects_per_s")
    figures = {name: statistics.median(getattr(one, name) for one in rounds) for name in names}
    return replace(rounds[0], **figures, missed=sum(one.missed for one in rounds))


async def warmed_up(server: StreamServer) -> int:
    """Bytes of memory after the first listener: what was created for it is not counted."""
    async with connect_listeners(server.groups(1)) as first:
        await server.publish("first")
        await first.collect()
    return pss_bytes(server.pids)


async def measure(side: str, server: StreamServer, size: int, frames: int, *, fresh: int) -> StreamFigures:
    """Connects all listeners, publishes frames to them, and collects their reports. Memory is counted above `fresh`, so
    that memory left by fewer listeners does not make more listeners look cheap.
    """
    async with connect_listeners(server.groups(size)) as listeners:
        await asyncio.sleep(SETTLE_S)
        kib = (pss_bytes(server.pids) - fresh) / size / 1024
        await listeners.collect()
        began_s = cpu_s(*server.pids)
        result = await publish_frames(server, listeners, size, frames)
        spent_s = cpu_s(*server.pids) - began_s
    delivered = sum(one["received"] for one in result)
    ages = result[0]["ages_ms"]
    return StreamFigures(
        size, side, kib, frame_us=spent_s / max(1, delivered) * 1e6, p50_ms=ages["0.5"], p99_ms=ages["0.99"],
        p999_ms=ages["0.999"], connects_per_s=size / listeners.connect_s, missed=size * frames - delivered,
    )  # fmt: skip


async def publish_frames(
    server: StreamServer, listeners: ListenerProcesses, size: int, frames: int
) -> list[dict[str, Any]]:
    """Publishes frames, further apart with more listeners. A frame that a late side conflated counts as missed."""
    for _ in range(frames):
        began_s = time.perf_counter()
        await server.publish(f"@{time.time_ns()}@")
        await asyncio.sleep(max(0.3, size * 80e-6 - (time.perf_counter() - began_s)))
    await asyncio.sleep(SETTLE_S)
    return await listeners.collect()


async def measure_idle(trial: Trial, size: int) -> tuple[list[tuple[str, ...]], Claim]:
    """The memory and processor time of `size` idle listeners, over several processes."""
    async with our_notifier(trial, "detached", processes=IDLE_PROCESSES) as server:
        before = pss_bytes(server.pids)
        async with connect_listeners(server.groups(size)) as listeners:
            await asyncio.sleep(SETTLE_S)
            kib = (pss_bytes(server.pids) - before) / size / 1024
            began_s, busy_s = time.perf_counter(), cpu_s(*server.pids)
            await asyncio.sleep(IDLE_CPU_S)
            share = (cpu_s(*server.pids) - busy_s) / (time.perf_counter() - began_s)
            idle_text = f"{share:.0%} of a core"
            speed = f"{size / listeners.connect_s:,.0f}"
            row = (f"{size:,}", f"{OURS}, {IDLE_PROCESSES} processes, idle", f"{kib:.1f}", idle_text, "", "", "", speed)
            what, ours = f"P3 {size:,} idle listeners on this machine", f"{kib:.1f} KiB each, {idle_text} in all"
            return [row], Claim(what, ours, f"{listeners.lost} lost", "-", "at least: they fit")


def claims(found: list[StreamFigures]) -> list[Claim]:
    """The claims at the largest size."""
    most = max(one.size for one in found if one.side == OURS)
    largest = {one.side: one for one in found if one.size == most}
    mine, result = largest.pop(OURS), []
    with_all = f"{mine.size:,} listen"
    for other in (largest[name] for name in ("nchan", "sse-starlette") if name in largest):
        less, times = other.kib / mine.kib, mine.frame_us / other.frame_us
        memory = f"P3 KiB a listener, {with_all}", f"{mine.kib:.1f}", f"{other.side} {other.kib:.1f}"
        result.append(Claim(*memory, f"{less:.1f} × less", "at most 4 KiB, aim 2"))
        processor = (
            f"P3 µs of processor a frame, {with_all}",
            f"{mine.frame_us:.1f}",
            f"{other.side} {other.frame_us:.1f}",
        )
        result.append(Claim(*processor, f"{times:.2f} ×", "at most 1.0, aim 0.7"))
    reference_ms = statistics.median(one.p99_ms for one in largest.values())
    age = f"P3 age of the news p99, {with_all}", f"{mine.p99_ms:.0f} ms", f"median of the others {reference_ms:.0f} ms"
    return [*result, Claim(*age, f"{mine.p99_ms / reference_ms:.2f} ×", "at most 1,000 ms, aim 500")]


def pss_bytes(pids: list[int]) -> int:
    """Memory of these processes and all below them; what is shared counts in part."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in descendants(set(pids)))


def plot(found: list[StreamFigures]) -> str:
    """Memory and processor time by listeners, a line a side."""
    sides = list(dict.fromkeys(one.side for one in found))

    def panel(title: str, figure: str) -> tuple[str, list[Line]]:
        return title, [
            Line(side, [(one.size, getattr(one, figure)) for one in found if one.side == side]) for side in sides
        ]

    memory, processor = panel("KiB a listener", "kib"), panel("µs of processor a frame", "frame_us")
    return line_plot([memory, processor, panel("age of the news, p99 ms", "p99_ms")])
