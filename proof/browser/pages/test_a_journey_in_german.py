"""No English reaches a German page in a real sale; `tests/browser/pages/test_no_english.py` has each state."""

from playwright.async_api import expect

from proof.browser.pages.test_no_english import Listener
from tests.browser.steps import SOON, enter, expect_confirmed, hold, pay, put_on_sale, wait_until_listed
from tests.support.browser import NewPage
from tests.support.running.suite import RunningSuite

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
