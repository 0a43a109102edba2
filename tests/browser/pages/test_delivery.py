"""What the event's page costs a phone: four requests for the first view, one for the second; 28 KB at most in English.

Other languages say the same in more letters, and Arabic letters take two bytes.
"""

import re
from typing import Any

import pytest
from playwright import sync_api

from shared.words.words import LANGUAGES, words
from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite

REQUESTS_MAX, BYTES_MAX, TRANSLATED_BYTES_MAX = 4, 28_000, 29_500
SECTIONS = [
    {"section_id": f"S{n}", "name": f"Section {n}", "kind": "ga", "capacity": 50, "price_minor": 4000 + 100 * n}
    for n in range(6)
]


class Traffic:
    """The requests that reach the server, and the bytes of their answers with header fields."""

    def __init__(self, page: Any) -> None:
        self._requests: dict[str, str] = {}
        self.bytes = 0
        devtools = page.context.new_cdp_session(page)
        devtools.send("Network.enable")
        devtools.on("Network.responseReceived", self._answered)
        devtools.on("Network.loadingFinished", self._finished)

    def _answered(self, event: Any) -> None:
        response = event["response"]
        if not response.get("fromDiskCache") and not response.get("fromPrefetchCache"):
            self._requests[event["requestId"]] = response["url"]

    def _finished(self, event: Any) -> None:
        if event["requestId"] in self._requests:
            self.bytes += event["encodedDataLength"]

    @property
    def urls(self) -> list[str]:
        return list(self._requests.values())


def open_event(page: Any, suite: RunningSuite, event_id: str, language: str) -> Traffic:
    traffic = Traffic(page)
    page.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    sync_api.expect(page.locator("#join")).to_be_visible()
    sync_api.expect(page.locator("#section-S5 .left")).to_have_text(words(language)("left_of", n=50, total=50))
    sync_api.expect(page.locator("#section-S5 .price")).to_have_text(re.compile(r"45[.,]50"))
    return traffic


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_view_takes_four_requests_and_the_second_one(page: Any, suite: RunningSuite, language: str) -> None:
    page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    fee = {"name": "Booking fee", "per": "ticket", "amount_minor": 50}
    event_id = put_on_sale(suite, name="Small & <quick>", sections=SECTIONS, fees=[fee])
    first = open_event(page, suite, event_id, language)
    assert len(first.urls) <= REQUESTS_MAX, first.urls
    assert 0 < first.bytes <= (BYTES_MAX if language == "en" else TRANSLATED_BYTES_MAX), first.bytes
    sync_api.expect(page.locator("#event-name")).to_have_text("Small & <quick>")
    again = page.context.new_page()
    second = open_event(again, suite, event_id, language)
    assert second.urls == [f"{suite.url}/e/{event_id}"]


def test_the_document_tells_the_truth_before_any_script_runs(browser: Any, suite: RunningSuite) -> None:
    event_id = put_on_sale(suite, name="</script><b>Bold", venue="Polar Arena", sections=SECTIONS)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{suite.url}/e/{event_id}")
    sync_api.expect(page.locator("#event-name")).to_have_text("</script><b>Bold")
    sync_api.expect(page.locator("#event-venue")).to_have_text("Polar Arena")
    assert page.title() == "</script><b>Bold · Onsale"
    assert page.locator("meta[property='og:title']").get_attribute("content") == "</script><b>Bold"
    context.close()
