"""A browser's EventSource receives a stream on every transport, and resumes it after a reconnect."""

from typing import Any

from tests.notifier.conftest import TRANSPORTS, Notifier, Start, neighbours, redis_proxy, start
from tests.notifier.frames import EVENT, REFERENCE
from tests.support.wait import wait_until

__all__ = ["neighbours", "redis_proxy", "start"]
OPEN_STREAM = """path => {
    window.events = []; window.opened = 0;
    const source = new EventSource(path);
    source.onopen = () => { window.opened += 1; };
    for (const name of ['line', 'sections', 'notice', 'order'])
        source.addEventListener(name, event => events.push([name, JSON.parse(event.data), event.lastEventId]));
}"""


async def test_an_event_source_receives_events_and_resumes_on_every_transport(start: Start, chromium: Any):
    for number, transport in zip((20, 30, 40), TRANSPORTS, strict=True):
        await receive_and_resume(await start(transport=transport, retry_ms=100), chromium, number)


async def receive_and_resume(notifier: Notifier, chromium: Any, number: int) -> None:
    url = f"http://127.0.0.1:{notifier.port}"
    context = await chromium.new_context()
    cookie = f"onsale_order_{REFERENCE}" if notifier.of_order else f"onsale_queue_{EVENT}"
    await context.add_cookies([{"name": cookie, "value": notifier.token(), "url": url}])
    page = await context.new_page()
    await page.goto(f"{url}/livez")
    await page.evaluate(OPEN_STREAM, notifier.path)

    async def holds(expression: str) -> bool:
        return bool(await page.evaluate(expression))

    count = len(notifier.names)
    await wait_until(lambda: holds(f"events.length === {count}"))
    assert [name for name, _, _ in await page.evaluate("events")] == notifier.names
    hub = notifier.state.hub
    for connection in hub:
        hub.close(connection)
    await wait_until(lambda: holds("opened === 2"))
    await wait_until(lambda: len(hub) == 1)
    await notifier.publish_number(number)
    await wait_until(lambda: holds(f"events.length > {count}"))
    name, data, last_id = (await page.evaluate("events"))[count]
    assert (name, str(number) in str(data)) == (notifier.names[0], True)
    assert last_id.startswith("1."), "events it had received were not sent again"
    await context.close()
    await wait_until(lambda: len(hub) == 0)
