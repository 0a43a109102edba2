"""What is held is shown in the hall, in a drawing and in words, also after a return and after a reload."""

from typing import Any

from playwright import sync_api

from tests.browser.hall.steps import open_hall
from tests.support.running.suite import RunningSuite


def test_the_best_available_is_shown_in_place_and_follows_what_is_returned(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    page.locator("#best-quantity").select_option("3")
    page.locator("#best-where").select_option("section:B")
    page.locator("#best-find").click()
    marks = page.locator("#held-hall circle")
    sync_api.expect(marks).to_have_count(3)
    seats = page.locator("#held-tickets li span").all_inner_texts()
    picture = page.locator("#held-hall svg")
    sync_api.expect(picture).to_have_attribute("aria-label", f"Where your places are: {'; '.join(seats)}")
    sync_api.expect(page.locator("#held-hall [data-mine]")).to_have_count(1)
    sync_api.expect(page.locator("#hall")).to_be_hidden()
    page.get_by_role("button", name=f"Remove {seats[0]}").click()
    sync_api.expect(marks).to_have_count(2)
    page.reload()
    sync_api.expect(marks).to_have_count(2)
    page.locator("#give-back").click()
    sync_api.expect(page.locator("#hall")).to_be_visible()
    sync_api.expect(page.locator("#held-hall")).to_be_hidden()
    sync_api.expect(page.locator("button.hall-label[data-section=B]")).to_contain_text("40 free")
