"""A browser's EventSource receives a stream on every transport, and resumes it after a reconnect."""

from typing import Any

from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.conftest import Notifier, Start, redis_proxy, services, start
from tests.notifier.frames import EVENT, line_frame, stock_frame
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

__all__ = ["redis_proxy", "services", "start"]
OPEN_STREAM = """path => {
    window.events = []; window.opened = 0;
    const source = new EventSource(path);
    source.onopen = () => { window.opened += 1; };
    for (const name of ['line', 'sections', 'notice'])
        source.addEventListener(name, event => events.push([name, JSON.parse(event.data), event.lastEventId]));
}"""


async def test_an_event_source_receives_events_and_resumes_on_every_transport(start: Start, chromium: Any):
    for head_seq, transport in zip((20, 30, 40), TRANSPORTS, strict=True):
        await receive_and_resume(await start(transport=transport, retry_ms=100), chromium, head_seq)


async def receive_and_resume(notifier: Notifier, chromium: Any, head_seq: int) -> None:
    await notifier.publish(line_frame(head_seq, head_seq))
    await notifier.publish(stock_frame(head_seq, A=head_seq))
    url = f"http://127.0.0.1:{notifier.port}"
    context = await chromium.new_context()
    await context.add_cookies([{"name": f"onsale_queue_{EVENT}", "value": queue_token(1), "url": url}])
    page = await context.new_page()
    await page.goto(f"{url}/livez")
    await page.evaluate(OPEN_STREAM, f"/events/{EVENT}/sections/updates")

    async def holds(expression: str) -> bool:
        return bool(await page.evaluate(expression))

    await wait_until(lambda: holds("events.length === 2"))
    assert [name for name, _, _ in await page.evaluate("events")] == ["line", "sections"]
    hub = notifier.state.hub
    for connection in hub:
        hub.close(connection)
    await wait_until(lambda: holds("opened === 2"))
    await wait_until(lambda: len(hub) == 1)
    await notifier.publish(line_frame(head_seq + 1, head_seq + 1))
    await wait_until(lambda: holds("events.length >= 3"))
    name, data, last_id = (await page.evaluate("events"))[2]
    assert (name, data["head_seq"]) == ("line", head_seq + 1)
    assert last_id.startswith("1."), "events it had received were not sent again"
    await context.close()
    await wait_until(lambda: len(hub) == 0)
