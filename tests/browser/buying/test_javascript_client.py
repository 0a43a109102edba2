"""`/onsale.js` in a browser: on the suite's own site it buys with its cookies; from another site the API is closed."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tests.browser.steps import CALL_TIMEOUT_MS, UPDATES, WaitingEvent, put_on_sale
from tests.support.running.suite import RunningSuite

PAGE = Path(__file__).parents[3] / "docs" / "use" / "client-libraries.md"
SECTIONS = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}]
JOIN_AND_WAIT = """async (event) => {
  const { Client, Fan } = await import("/onsale.js");
  window.fan = new Fan(new Client(), event);
  await fan.join();
  window.seen = [];
  window.waited = fan.wait((place) => seen.push(place.status));
  return fan.place.position_in_queue;
}"""


def shops_page(page: Any, address: str, body: str = "") -> None:
    """Opens a page of a shop at this address."""
    page.route(
        address, lambda route: route.fulfill(body=f"<!doctype html><title>Shop</title>{body}", content_type="text/html")
    )
    page.goto(address)


def test_the_example_of_the_documents_buys_on_the_suites_site(page: Any, suite: RunningSuite) -> None:
    [example] = re.findall(r"```html\n(.*?)```", PAGE.read_text(), re.S)
    event_id = put_on_sale(suite, sections=SECTIONS)
    shops_page(page, f"{suite.url}/shop.html", example.replace("arena-2026", event_id))
    sync_api.expect(page.locator("#now")).to_have_text("confirmed", timeout=CALL_TIMEOUT_MS)


def test_a_call_ends_the_wait_with_and_without_a_stream(page: Any, event: WaitingEvent) -> None:
    """The tokens stay in cookies that scripts cannot read."""
    for streams in (True, False):
        if not streams:
            page.context.clear_cookies()
            page.route(UPDATES, lambda route: route.abort())
        event.operate("PATCH", event.room, {"max_active": 0, "reason": "test"})
        shops_page(page, f"{event.suite.url}/shop.html")
        assert page.evaluate(JOIN_AND_WAIT, event.event_id) >= 0
        event.operate("PATCH", event.room, {"max_active": 5, "reason": "test"})
        place = page.evaluate("() => waited")
        assert (place["status"], page.evaluate("() => seen.at(-1)")) == ("ready", "ready")
        answer = page.evaluate("() => fan.claim()")
        assert answer["pass"]
        assert page.evaluate("() => [fan.queueToken ?? null, fan.pass ?? null, document.cookie.includes('pass')]") == [
            None, None, False
        ]  # fmt: skip


def test_updates_come_by_stream_and_by_polls_where_there_is_none(page: Any, event: WaitingEvent) -> None:
    shops_page(page, f"{event.suite.url}/shop.html")
    page.evaluate(JOIN_AND_WAIT, event.event_id)
    hear = """(n) => new Promise((done) => {
      const heard = {}, states = [];
      const tell = (kind) => (frame) => {
        heard[kind] = frame;
        if (heard.line && heard.sections) { stop(); done([states, heard.sections.sections[0].available_seats]); }
      };
      const stop = fan.updates({ line: tell("line"), sections: tell("sections") }, (state) => states.push(state));
    })"""
    states, left = page.evaluate(hear)
    assert (states, left) == (["live"], 90)
    page.route(UPDATES, lambda route: route.abort())
    states, left = page.evaluate(hear)
    assert ("live" in states, left) == (False, 90)


@pytest.fixture
def other_site(tmp_path: Path) -> Iterator[str]:
    """The address of an empty page on another origin."""
    (tmp_path / "index.html").write_text("<!doctype html><title>Shop</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_another_site_may_load_the_client_and_not_ask_the_api(
    browser: Any, event: WaitingEvent, other_site: str
) -> None:
    page = browser.new_page()
    page.goto(other_site)
    refused = """async ([suite, event]) => {
      const { Client, Problem } = await import(`${suite}/onsale.js`);
      const problem = await new Client(suite).ask("GET", `/events/${event}/queue`, { patience: 0 }).catch((one) => one);
      const open = await fetch(`${suite}/e/${event}/button.json`);
      return [open.status, problem instanceof Problem, problem.status];
    }"""
    assert page.evaluate(refused, [event.suite.url, event.event_id]) == [200, True, 0]
    page.close()
