"""A promoter's site on another origin, with a policy that allows nothing but the button."""

import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite

PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Polar Arena</title>
  <script async src="{suite}/embed.js"></script>
</head>
<body>
  <main>
    <h1>Polar Arena</h1>
    <onsale-button event="{event}" lang="de"><a href="{suite}/e/{event}">Karten kaufen</a></onsale-button>
  </main>
</body>
</html>"""
POLICY = "default-src 'none'; script-src {suite}; connect-src {suite}; require-trusted-types-for 'script'"
BRAND = {"accent": "#9c3a22"}
SECTIONS = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 3000}]


class PromotersSite:
    """A server on loopback; the event that its page sells, and the address of the page."""

    def __init__(self, suite: RunningSuite, event_id: str) -> None:
        self.suite, self.event_id = suite, event_id
        body = PAGE.format(suite=suite.url, event=event_id).encode()
        policy = POLICY.format(suite=suite.url)

        class Site(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.send_header("content-security-policy", policy)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
async def site(suite: RunningSuite) -> AsyncIterator[PromotersSite]:
    site = PromotersSite(suite, await put_on_sale(suite, sections=SECTIONS, brand=BRAND))
    yield site
    site.server.shutdown()
    site.server.server_close()
