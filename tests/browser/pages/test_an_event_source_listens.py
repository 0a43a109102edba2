"""A real browser's EventSource receives a stream on every transport and resumes by itself where it was."""

from typing import Any

from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.conftest import EVENT, Notifier, Start, fan, line, redis_proxy, services, start, stock
from tests.support.running.browser import NEEDS_CHROMIUM
from tests.support.wait import wait_until

__all__ = ["redis_proxy", "services", "start"]
pytestmark = NEEDS_CHROMIUM
LISTEN = """path => {
    window.heard = []; window.opened = 0;
    const source = new EventSource(path);
    source.onopen = () => { window.opened += 1; };
    for (const name of ['line', 'sections', 'notice'])
        source.addEventListener(name, event => heard.push([name, JSON.parse(event.data), event.lastEventId]));
}"""


async def test_it_receives_events_and_resumes_where_it_was(start: Start, chromium: Any):
    for at, transport in zip((20, 30, 40), TRANSPORTS, strict=True):
        await hears_and_comes_back(await start(transport=transport, retry_ms=100), chromium, at)


async def hears_and_comes_back(notifier: Notifier, chromium: Any, at: int) -> None:
    await notifier.show(line(at, at))
    await notifier.show(stock(at, A=at))
    address = f"http://127.0.0.1:{notifier.port}"
    context = await chromium.new_context()
    await context.add_cookies([{"name": f"onsale_queue_{EVENT}", "value": fan(1), "url": address}])
    page = await context.new_page()
    await page.goto(f"{address}/livez")
    await page.evaluate(LISTEN, f"/events/{EVENT}/sections/updates")

    async def heard(said: str) -> bool:
        return bool(await page.evaluate(said))

    await wait_until(lambda: heard("heard.length === 2"))
    assert [name for name, _, _ in await page.evaluate("heard")] == ["line", "sections"]
    hub = notifier.state.hub
    for connection in hub:
        hub.close(connection)
    await wait_until(lambda: heard("opened === 2"))
    await wait_until(lambda: len(hub) == 1)
    await notifier.show(line(at + 1, at + 1))
    await wait_until(lambda: heard("heard.length >= 3"))
    name, said, last_id = (await page.evaluate("heard"))[2]
    assert (name, said["head_seq"]) == ("line", at + 1)
    assert last_id.startswith("1."), "what it had heard was not said again"
    await context.close()
    await wait_until(lambda: len(hub) == 0)
