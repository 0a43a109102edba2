"""No English reaches a page in another language: whatever a page ever shows is compared with the English catalogue.

The browser reports each text and each spoken attribute as it appears, also those that are there for a moment.
"""

import json
import re
from typing import Any

from playwright import sync_api

from shared.words.words import FOLDER
from tests.browser.states import STATES, MockedPage
from tests.browser.steps import SOON, enter, expect_confirmed, hold, pay, put_on_sale, wait_until_listed
from tests.support.running.suite import RunningSuite

REPORTING = """(() => {
  const SPOKEN = ["aria-label", "alt", "title", "placeholder"];
  const tell = (node) => {
    if (node.nodeType === 3 && !node.parentElement?.closest("script, style")) window.told(node.data);
    if (node.nodeType !== 1) return;
    for (const name of SPOKEN) if (node.hasAttribute(name)) window.told(node.getAttribute(name));
    node.childNodes.forEach(tell);
  };
  new MutationObserver((changes) => changes.forEach((change) => {
    change.addedNodes.forEach(tell);
    if (change.type !== "childList") tell(change.target);
  })).observe(document, {
    subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: SPOKEN,
  });
})()"""
ABOUT = ("language", "locale", "name", "date", "direction")
SECTIONS = [
    {"section_id": "A", "name": "Parkett", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 4000},
    {"section_id": "GA1", "name": "Innenraum", "kind": "ga", "capacity": 50, "price_minor": 3000},
]


def catalogue(language: str) -> dict[str, set[str]]:
    """The forms of each text."""
    known = json.loads((FOLDER / f"{language}.json").read_text("utf-8"))
    return {key: set(text.values() if isinstance(text, dict) else [text]) for key, text in known.items()}


def pattern(text: str) -> str:
    return ".+?".join(map(re.escape, re.split(r"\{\w+\}", text)))


def only_english(language: str) -> re.Pattern[str]:
    """Matches what English says and this language does not."""
    here = catalogue(language)
    same = set.union(*here.values())
    foreign = [
        pattern(text)
        for key, forms in catalogue("en").items()
        for text in forms - same
        if re.search(r"[^\W\d_]{3}", re.sub(r"\{\w+\}", "", text)) and key not in ABOUT
    ]
    return re.compile("|".join(foreign))


class Listener:
    """What a page has shown."""

    def __init__(self, page: Any) -> None:
        self.texts: set[str] = set()
        page.expose_function("told", lambda text: self.texts.add(" ".join(text.split())))
        page.add_init_script(REPORTING)

    def english(self, language: str) -> list[str]:
        foreign = only_english(language)
        return sorted(text for text in self.texts if foreign.fullmatch(text))


def test_a_journey_in_german_shows_no_english(browser: sync_api.Browser, suite: RunningSuite) -> None:
    event_id = put_on_sale(suite, name="Nordlicht", venue="Polarhalle", sections=SECTIONS, starts_at=SOON)
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="de-DE")
    page = context.new_page()
    heard = Listener(page)
    page.goto(f"{suite.url}/")
    wait_until_listed(page, event_id)
    page.locator(f"#events a[href='/e/{event_id}']").click()
    enter(page)
    page.locator("#section-A button").click()
    page.locator("#seats .seat[data-status=available]").first.click()
    page.locator("#seats-back").click()
    page.locator("#section-GA1 .step >> nth=1").click()
    hold(page)
    page.locator("#promo").fill("FALSCH")
    page.locator("#promo-apply").click()
    page.locator("#promo-note:not(:empty)").wait_for()
    pay(page)
    expect_confirmed(page)
    sync_api.expect(page.locator("#tickets li")).to_have_count(2)
    assert {"Anstellen", "Sie sind dabei"} & heard.texts, "the page was heard"
    assert heard.english("de") == []
    context.close()


def test_no_state_of_a_page_shows_english(browser: sync_api.Browser, suite: RunningSuite) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="de-DE", reduced_motion="reduce")
    page = context.new_page()
    heard, mocked = Listener(page), MockedPage(page, suite)
    for state in STATES:
        STATES[state](mocked)
    assert len(heard.texts) > 200
    assert heard.english("de") == []
    context.close()


def test_an_english_word_is_heard(page: Any, suite: RunningSuite) -> None:
    heard = Listener(page)
    page.goto(f"{suite.url}/?lang=de")
    page.evaluate(
        "document.querySelector('h1').ariaLabel = 'Seats taken'; document.querySelector('h1').title = 'Get the tickets'"
    )
    page.evaluate("document.querySelector('h1').textContent = '4 tickets left.'")
    sync_api.expect(page.locator("h1")).to_have_text("4 tickets left.")
    assert heard.english("de") == ["4 tickets left.", "Get the tickets"]
