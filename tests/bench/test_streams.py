"""The benchmark of streams: listeners in processes of their own, its claims and its plot."""

import asyncio
import time
import xml.etree.ElementTree as ET

from bench.record.svg_plot import Line, line_plot
from bench.streams.listener_processes import connect_listeners
from bench.streams.listeners import ListenerGroup
from bench.streams.streams import StreamFigures, claims, plot
from onsale.local.ports import HOST
from tests.support.wait import wait_until


async def test_listeners_connect_and_report_received_frames_with_their_age() -> None:
    writers: list[asyncio.StreamWriter] = []
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writers.append(writer)

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with connect_listeners(
        [ListenerGroup("ours", port, "/x", 6), ListenerGroup("sse", port, "/x", 3)]
    ) as listeners:
        assert (len(writers), listeners.lost) == (9, 0)
        assert len({request for request in requests if b"authorization: Bearer " in request}) == 6
        for writer in writers:
            writer.write(b"data: @%d@\n\n" % (time.time_ns() - 2_000_000_000))
        received = [0, 0]

        async def all_received() -> bool:
            for n, report in enumerate(await listeners.collect()):
                received[n] += report["received"]
                assert not report["received"] or 2_000 <= report["ages_ms"]["0.99"] < 10_000
            return received == [6, 3]

        await wait_until(all_received)
    for writer in writers:
        writer.close()
    server.close()


FIGURES = [
    StreamFigures(size, side, kib, us, 1, p99, 3, 1000, 0)
    for size in (1_000, 15_000)
    for side, kib, us, p99 in (("ours, detached", 1.5, 4.0, 80.0), ("nchan", 12.0, 8.0, 100.0))
]


def test_the_claims_are_those_of_the_largest_size() -> None:
    memory, processor, age = claims(FIGURES)
    assert memory.what == "P3 KiB a listener, 15,000 listen"
    assert (memory.ours, memory.beside, memory.ratio) == ("1.5", "nchan 12.0", "8.0 × less")
    assert (processor.ratio, age.ratio) == ("0.50 ×", "0.80 ×")


def test_the_plot_shows_every_side_in_every_panel() -> None:
    picture = ET.fromstring(plot(FIGURES))
    namespace = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f".//{namespace}polyline")) == 2 * 3
    texts = {text.text for text in picture.iter(f"{namespace}text")}
    assert {"KiB a listener", "ours, detached", "nchan", "15k", "12"} <= texts
    assert ET.fromstring(line_plot([("a < b", [Line("&", [(1, 0)])])])) is not None
