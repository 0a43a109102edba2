"""A screen that stays open: eight hours of figures, sent as fast as the page takes them, leave heap and work flat.

The page reads them from streams of its own `EventSource`: each ends after some minutes of figures and is opened again.
"""

import asyncio
import math
from collections.abc import Callable
from statistics import median
from typing import Any

import orjson
import pytest
from playwright.async_api import CDPSession, Route

from tests.browser.console.conftest import Open
from tests.support.running.suite import RunningSuite

HOURS, PER_HOUR, PART_S, KEPT_S = 8, 3_600, 1_800, 900  # figures an hour, sent at once, and kept by the page
CHANGES_MAX = 200
SAMPLES, REOPENS_WITHIN_S = 3, 60
HEAP_MORE_MB, WORK_MORE = 0.7, 1.5


def message(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


def figures_of(snapshot: dict[str, Any], seconds: int) -> Callable[[int], bytes]:
    """Makes the next part of the stream from the event's snapshot: figures of each second, a change each minute, and an
    alarm that comes and goes.
    """
    vitals = snapshot["vitals"]

    def part(first: int) -> bytes:
        body = [message("snapshot", snapshot)]
        for n in range(first, first + seconds):
            vitals["at_ms"] += 1000
            vitals["line"]["waiting"] = 50_000 + round(40_000 * math.sin(n / 700))
            vitals["rate"]["called_per_s"] = 50 + n % 7
            vitals["stock"]["sold"] = n // 40
            body.append(message("vitals", vitals))
            if n % 60 == 0:
                change = {
                    "service": "queue", "id": n, "at_ms": vitals["at_ms"], "actor": "ann", "action": "set",
                    "subject": "event:x", "reason": None, "before": {"rate_per_s": n}, "after": {"rate_per_s": n + 1},
                }  # fmt: skip
                snapshot["changes"] = [change, *snapshot["changes"]][:CHANGES_MAX]
                body.append(message("change", change))
            if n % 150 == 0:
                alarm = {
                    "name": "QueueLong", "severity": "warning", "summary": "many", "meaning": "many",
                    "check_first": "all", "do": "wait",
                    "since_ms": vitals["at_ms"],
                }  # fmt: skip
                snapshot["alarms"] = [] if n % 300 else [alarm]
                body.append(message("alarms", snapshot["alarms"]))
        return b"".join(body)

    return part


async def heap_mb(session: CDPSession) -> float:
    """The page's heap after a full collection."""
    await session.send("HeapProfiler.collectGarbage")
    return float((await session.send("Runtime.getHeapUsage"))["usedSize"]) / 1e6


async def worked_ms(session: CDPSession) -> float:
    """The page's processor time so far."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


@pytest.mark.timeout(900)
async def test_heap_and_work_stay_flat(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, "events/arena-2026")
    snapshot = await page.evaluate(
        """() => new Promise((found) => {
            const stream = new EventSource("/console/api/events/arena-2026/stream");
            stream.addEventListener("snapshot", (event) => { stream.close(); found(JSON.parse(event.data)); });
        })"""
    )
    next_part = figures_of(snapshot, PART_S)
    opened: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/api/events/arena-2026/stream", opened.put)
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time, not that of the clock
    await page.reload()
    heaps: list[float] = []
    works_ms: list[float] = []
    before_ms = 0.0
    for first in range(0, HOURS * PER_HOUR + 1, PART_S):
        async with asyncio.timeout(REOPENS_WITHIN_S):
            stream = await opened.get()  # it has taken all that the last one brought
        works_ms.append((await worked_ms(session) - before_ms) / PART_S)
        heaps.append(await heap_mb(session))
        before_ms = await worked_ms(session)
        await stream.fulfill(body=next_part(first), content_type="text/event-stream")
    del works_ms[0], heaps[0]  # of a page without figures
    assert await page.evaluate("document.querySelectorAll('*').length") < 3_000
    found = f"heap in MB {heaps}, work for each second of figures in ms {works_ms}"
    parts = math.ceil(KEPT_S / PART_S)
    full = slice(parts, parts + SAMPLES)
    assert median(heaps[-SAMPLES:]) < median(heaps[full]) + HEAP_MORE_MB, found
    assert median(works_ms[-SAMPLES:]) < WORK_MORE * median(works_ms[full]), found
