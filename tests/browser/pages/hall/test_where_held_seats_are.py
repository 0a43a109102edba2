"""What is held is shown in the hall, in a drawing and in words, also after a return and after a reload."""

from typing import Any

from playwright.async_api import expect

from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import come_in


async def test_the_best_available_is_shown_in_place_and_follows_what_is_returned(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await page.locator("#best-quantity").select_option("3")
    await page.locator("#best-where").select_option("section:B")
    await page.locator("#best-find").click()
    marks = page.locator("#held-hall circle")
    await expect(marks).to_have_count(3)
    seats = await page.locator("#held-tickets li span").all_inner_texts()
    picture = page.locator("#held-hall svg")
    await expect(picture).to_have_attribute("aria-label", f"Where your places are: {'; '.join(seats)}")
    await expect(page.locator("#held-hall [data-mine]")).to_have_count(1)
    await expect(page.locator("#hall")).to_be_hidden()
    await page.get_by_role("button", name=f"Remove {seats[0]}").click()
    await expect(marks).to_have_count(2)
    await page.reload()
    await expect(marks).to_have_count(2)
    await page.locator("#give-back").click()
    await expect(page.locator("#hall")).to_be_visible()
    await expect(page.locator("#held-hall")).to_be_hidden()
    await expect(page.locator("button.hall-label[data-section=B]")).to_contain_text("40 free")
