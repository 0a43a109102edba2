"""A screen that stays open: eight hours of figures, sent as fast as the page takes them, leave heap and work flat."""

import json
from typing import Any

import pytest

from tests.browser.console.conftest import Open, fake_stream
from tests.support.running.suite import RunningSuite

PART, PER_HOUR = 600, 3_600
FIGURES = """
window.figures = async ({ vitals, first, count }) => {
  const began = performance.now();
  for (let n = first; n < first + count; n++) {
    vitals.at_ms += 1000;
    vitals.line.waiting = 50_000 + Math.round(40_000 * Math.sin(n / 700));
    vitals.rate.called_per_s = 50 + n % 7;
    vitals.stock.sold = Math.round(n / 40);
    window.send("vitals", vitals);
    if (n % 60 === 0) window.send("change", { service: "queue", id: n, at_ms: vitals.at_ms, actor: "ann", action: "set",
      subject: "event:x", reason: null, before: { rate_per_s: n }, after: { rate_per_s: n + 1 } });
    if (n % 300 === 0) window.send("alarms", n % 600 ? [] : [{ name: "QueueLong", severity: "warning", summary: "many",
      meaning: "many", check_first: "all", do: "wait", since_ms: vitals.at_ms }]);
    if (n % 20 === 0) await new Promise((next) => requestAnimationFrame(next));
  }
  return [vitals.at_ms, performance.now() - began];
};
"""


@pytest.mark.parametrize("hours", [0.5, pytest.param(8, marks=pytest.mark.proof)])
async def test_heap_and_work_stay_flat(suite: RunningSuite, open_page: Open, hours: float) -> None:
    page = await open_page(suite, "events/arena-2026")
    await page.add_init_script(FIGURES)
    snapshot = await fake_stream(page)
    session = await page.context.new_cdp_session(page)
    vitals: dict[str, Any] = json.loads(json.dumps(snapshot["vitals"]))
    heaps: list[float] = []
    times_ms: list[float] = []
    for first in range(0, round(hours * PER_HOUR), PART):
        sent = {"vitals": vitals, "first": first, "count": PART}
        vitals["at_ms"], took_ms = await page.evaluate("sent => window.figures(sent)", sent)
        await session.send("HeapProfiler.collectGarbage")
        heaps.append((await session.send("Runtime.getHeapUsage"))["usedSize"] / 1e6)
        times_ms.append(took_ms)
    full = 3 if hours > 1 else 2  # parts until what is kept is full: fifteen minutes of figures, 200 changes
    nodes = await page.evaluate("document.querySelectorAll('*').length")
    assert nodes < 3_000
    found = f"heap in MB {heaps}, time of {PART} figures in ms {times_ms}"
    assert heaps[-1] < 1.15 * heaps[full - 1] + 1, found
    assert times_ms[-1] < 3 * max(times_ms[:full]), found
