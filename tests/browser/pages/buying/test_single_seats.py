"""Seats that a choice would leave alone: said before anything is held, with better ones that one press takes."""

from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import LANGUAGES
from tests.browser.readability import axe_problems, layout_problems
from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import NO_ANSWER, RecordedSite
from tests.browser.recorded.steps import change_seats, come_in
from tests.support.browser import NewPage

RESERVATIONS = "POST /events/hall/reservations"
SOLD = 2


def seat(page: Any, seat_id: str) -> Any:
    return page.locator(f"#seats [data-seat={seat_id}]")


async def open_list(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await page.locator("#section-A button").click()


async def expect_basket(page: Any, *numbers: int) -> None:
    names = " · ".join(f"Block A, row 1, seat {n}" for n in numbers)
    await expect(page.locator("#basket-list")).to_have_text(names)


async def test_the_better_seats_are_offered_and_taken_with_the_keyboard(page: Any, site: RecordedSite) -> None:
    await open_list(page, site)
    hint = page.locator("#single-seats")
    await expect(hint).to_be_hidden()
    await seat(page, "A-1-2").click()
    await expect(hint.locator("p")).to_have_text("Left alone: Block A, row 1, seat 1. A single seat is hard to sell.")
    await expect(page.locator("#announcer")).to_contain_text("Left alone: Block A, row 1, seat 1.")
    take = page.get_by_role("button", name="Take Block A, row 1, seat 1 instead")
    await take.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#hold")).to_be_focused()
    await expect(hint).to_be_hidden()
    await expect_basket(page, 1)
    await expect(seat(page, "A-1-1")).to_have_attribute("aria-selected", "true")
    await expect(seat(page, "A-1-2")).to_have_attribute("aria-selected", "false")
    await page.locator("#hold").click()
    await expect(page.locator("#held-tickets li span")).to_have_text(["Block A, row 1, seat 1"])
    assert site.bodies(RESERVATIONS) == [{"seats": ["A-1-1"]}]


async def test_the_list_knows_it_while_the_map_is_not_known(page: Any, site: RecordedSite) -> None:
    site.answers["GET /events/hall/map/state"] = NO_ANSWER
    await open_list(page, site)
    for n in (2, 3):
        await seat(page, f"A-1-{n}").click()
    await page.get_by_role("button", name="Take Block A, row 1, seat 1; Block A, row 1, seat 2 instead").click()
    await expect_basket(page, 1, 2)


async def test_the_hint_follows_what_others_buy(page: Any, site: RecordedSite) -> None:
    await open_list(page, site)
    for n in (3, 4):
        await seat(page, f"A-1-{n}").click()
    await expect(page.locator("#single-seats")).to_be_hidden()
    change_seats(site, "hall", ["A-1-1"], SOLD)
    await expect(page.locator("#single-seats p")).to_contain_text("Block A, row 1, seat 2")
    await page.locator("#single-seats button").click()
    await expect_basket(page, 2, 3)


async def test_an_event_that_allows_it_says_nothing(page: Any, site: RecordedSite) -> None:
    limits = site.answers["GET /events/hall"]["limits"] | {"single_seats": "allow"}
    site.change("GET /events/hall", limits=limits)
    await open_list(page, site)
    await seat(page, "A-1-2").click()
    await expect_basket(page, 2)
    await expect(page.locator("#single-seats")).to_be_hidden()


async def test_a_refusal_offers_the_seats_that_the_server_names(page: Any, site: RecordedSite) -> None:
    await open_list(page, site)
    for n in (5, 6):
        await seat(page, f"A-1-{n}").click()
    held = site.answers[RESERVATIONS]
    site.answers[RESERVATIONS] = problem("single-seat", "No.", seats=["A-1-7"], better=["A-1-6", "A-1-7"])
    await page.locator("#hold").click()
    await expect(page.locator("#single-seats p")).to_contain_text("Such a choice is not sold here")
    await expect(page.locator("#trouble")).to_be_hidden()
    site.answers[RESERVATIONS] = held
    await page.get_by_role("button", name="Take Block A, row 1, seat 6; Block A, row 1, seat 7 instead").click()
    await expect_basket(page, 6, 7)
    await page.locator("#hold").click()
    await expect(page.locator("#held-tickets")).to_be_visible()
    assert site.bodies(RESERVATIONS)[-1] == {"seats": ["A-1-6", "A-1-7"]}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_hint_fits_a_phone_and_is_readable(new_page: NewPage, site: RecordedSite, language: str) -> None:
    page = await new_page(locale=language, viewport={"width": 320, "height": 640})
    await open_list(page, site)
    await seat(page, "A-1-2").click()
    await expect(page.locator("#single-seats button")).to_be_visible()
    assert [*await axe_problems(page), *await layout_problems(page)] == []
