"""`/onsale.js` in a browser: on the suite's own site it buys with its cookies; from another site the API is closed."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.steps import CALL_TIMEOUT_MS, WaitingEvent, put_on_sale
from tests.support.running.suite import RunningSuite

PAGE = Path(__file__).parents[3] / "docs" / "use" / "client-libraries.md"
SECTIONS = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}]


async def shops_page(page: Any, address: str, body: str = "") -> None:
    """Opens a page of a shop at this address."""
    await page.route(
        address, lambda route: route.fulfill(body=f"<!doctype html><title>Shop</title>{body}", content_type="text/html")
    )
    await page.goto(address)


async def test_the_example_of_the_documents_buys_on_the_suites_site(page: Any, suite: RunningSuite) -> None:
    [example] = re.findall(r"```html\n(.*?)```", PAGE.read_text(), re.S)
    event_id = await put_on_sale(suite, sections=SECTIONS)
    await shops_page(page, f"{suite.url}/shop.html", example.replace("arena-2026", event_id))
    await expect(page.locator("#now")).to_have_text("confirmed", timeout=CALL_TIMEOUT_MS)


@pytest.fixture
def other_site(tmp_path: Path) -> Iterator[str]:
    """The address of an empty page on another origin."""
    (tmp_path / "index.html").write_text("<!doctype html><title>Shop</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


async def test_another_site_may_load_the_client_and_not_ask_the_api(
    chromium: Any, event: WaitingEvent, other_site: str
) -> None:
    page = await chromium.new_page()
    await page.goto(other_site)
    refused = """async ([suite, event]) => {
      const { Client, Problem } = await import(`${suite}/onsale.js`);
      const problem = await new Client(suite).ask("GET", `/events/${event}/queue`, { patience: 0 }).catch((one) => one);
      const open = await fetch(`${suite}/e/${event}/button.json`);
      return [open.status, problem instanceof Problem, problem.status];
    }"""
    assert await page.evaluate(refused, [event.suite.url, event.event_id]) == [200, True, 0]
    await page.close()
