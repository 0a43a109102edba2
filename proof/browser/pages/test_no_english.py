"""No English reaches a page in another language: whatever a page ever shows is compared with the English catalogue.

The browser reports each text and each spoken attribute as it appears, also those that are there for a moment.
"""

import json
import re
from typing import Any

from playwright.async_api import expect

from shared.words.words import FOLDER
from tests.browser.recorded.site import RecordedSite
from tests.browser.states import STATES, MockedPage
from tests.browser.steps import SOON, enter, expect_confirmed, hold, pay, put_on_sale, wait_until_listed
from tests.support.browser import NewPage
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

    def __init__(self) -> None:
        self.texts: set[str] = set()

    @classmethod
    async def of(cls, page: Any) -> "Listener":
        heard = cls()
        await page.expose_function("told", lambda text: heard.texts.add(" ".join(text.split())))
        await page.add_init_script(REPORTING)
        return heard

    def english(self, language: str) -> list[str]:
        foreign = only_english(language)
        return sorted(text for text in self.texts if foreign.fullmatch(text))


async def test_no_state_of_a_page_shows_english(new_page: NewPage, site: RecordedSite) -> None:
    page = await new_page(locale="de-DE", reduced_motion="reduce")
    heard, mocked = await Listener.of(page), MockedPage(page, site)
    for state in STATES:
        await STATES[state](mocked)
    assert len(heard.texts) > 200
    assert heard.english("de") == []


async def test_an_english_word_is_heard(page: Any, site: RecordedSite) -> None:
    heard = await Listener.of(page)
    await page.goto(f"{site.url}/?lang=de")
    await page.evaluate(
        "document.querySelector('h1').ariaLabel = 'Seats taken'; document.querySelector('h1').title = 'Get the tickets'"
    )
    await page.evaluate("document.querySelector('h1').textContent = '4 tickets left.'")
    await expect(page.locator("h1")).to_have_text("4 tickets left.")
    assert heard.english("de") == ["4 tickets left.", "Get the tickets"]


# -- in a real sale ----------------------------------------------------------------------------------------------------

SECTIONS = [
    {"section_id": "A", "name": "Parkett", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 4000},
    {"section_id": "GA1", "name": "Innenraum", "kind": "ga", "capacity": 50, "price_minor": 3000},
]


async def test_a_journey_in_german_shows_no_english(new_page: NewPage, suite: RunningSuite) -> None:
    event_id = await put_on_sale(suite, name="Nordlicht", venue="Polarhalle", sections=SECTIONS, starts_at=SOON)
    page = await new_page(locale="de-DE")
    heard = await Listener.of(page)
    await page.goto(f"{suite.url}/")
    await wait_until_listed(page, event_id)
    await page.locator(f"#events a[href='/e/{event_id}']").click()
    await enter(page)
    await page.locator("#section-A button").click()
    await page.locator("#seats .seat[data-status=available]").first.click()
    await page.locator("#seats-back").click()
    await page.locator("#section-GA1 .step >> nth=1").click()
    await hold(page)
    await page.locator("#promo").fill("FALSCH")
    await page.locator("#promo-apply").click()
    await page.locator("#promo-note:not(:empty)").wait_for()
    await pay(page)
    await expect_confirmed(page)
    await expect(page.locator("#tickets li")).to_have_count(2)
    assert {"Anstellen", "Sie sind dabei"} & heard.texts, "the page was heard"
    assert heard.english("de") == []
