"""Reserved seats on the map: held for everybody, free for who typed their code or came by their lane. They are
chosen by touch, mouse and keys, have words of their own, and are asked for again while others take them.
"""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from features.hall.seat_codes import FREE, HELD, SOLD
from shared.words.words import LANGUAGES, words
from tests.browser.hall_steps import cursor, expect_cursor, middle, open_section, pixels, section, until_painted
from tests.browser.keyboard import tab_to
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import Asked, Json, RecordedSite
from tests.browser.recorded.steps import change_seats, come_in

EVENT = "GET /events/hall"
RESERVED, HOLD = f"{EVENT}/map/reserved", "POST /events/hall/reservations"
ROW_1 = [f"A-1-{n}" for n in range(1, 11)]
IN_A_BASKET, KEPT = "in somebody's basket$", "available, kept for you$"
ASKS_AGAIN_MS, HIGHER_THAN_THE_PAGE_PX = 6_000, 2_600
ALL: Json = {"seats": 10, "free": {"A": [[0, 9]]}}
NONE: Json = {"seats": 0, "free": {}}


class Club:
    """Row 1 of block A is kept for the code FANCLUB; `free` is what is left of it."""

    def __init__(self, site: RecordedSite) -> None:
        self.free = ALL
        site.change(EVENT, code_opens_places=True)
        change_seats(site, "hall", ROW_1, HELD)
        sections = site.answers[f"{EVENT}/sections"]["sections"]
        shown = [each | ({"available_seats": 50} if each["section_id"] == "A" else {}) for each in sections]
        site.change(f"{EVENT}/sections", sections=shown)
        site.answers[RESERVED] = self.answer

    def answer(self, asked: Asked) -> Any:
        return self.free if asked.query == "code=FANCLUB" else NONE


@pytest.fixture
def club(site: RecordedSite) -> Club:
    return Club(site)


async def use_code(page: Any, code: str = "FANCLUB") -> None:
    await page.locator("#type-code").fill(code)
    await page.locator("#type-code-form button").click()


def asked(site: RecordedSite) -> list[str]:
    return [each.query for each in site.asked if each.name == RESERVED]


async def to_row_1(page: Any) -> None:
    """The cursor stands on A-1-1."""
    await open_section(page, "A")
    await expect(cursor(page)).to_be_focused()
    for _ in range(6):
        await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Home")
    await expect_cursor(page, "Row 1, seat 1,")


@pytest.mark.usefixtures("club")
async def test_a_typed_code_frees_its_seats_on_the_map_for_keys(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await to_row_1(page)
    await expect_cursor(page, IN_A_BASKET)
    before = await pixels(page)
    await page.keyboard.press("Enter")
    await expect(page.locator("#announcer")).to_have_text("This seat is not available.")
    assert asked(site) == [], "nobody typed a code"
    await use_code(page)
    await expect(page.locator("#announcer")).to_have_text("10 seats that are kept for you are free.")
    await expect(page.locator("#hall-kept")).to_have_text("10 seats that are kept for you are free.")
    await expect_cursor(page, KEPT)
    await until_painted(page, before)
    await cursor(page).focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#announcer")).to_have_text(
        "Block A: Row 1, seat 2, Front €90.00, available, kept for you"
    )
    await page.keyboard.press("Enter")
    await expect_cursor(page, "Yours$")
    await page.locator("#hold").click()
    await expect(page.locator("#held")).to_be_visible()
    assert site.bodies(HOLD) == [{"seats": ["A-1-2"], "code": "FANCLUB"}]


@pytest.mark.usefixtures("club")
async def test_they_are_picked_by_touch_on_a_phone(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await use_code(page)
    await expect(page.locator("#hall-kept")).to_be_visible()
    await to_row_1(page)
    await page.touchscreen.tap(*await middle(cursor(page)))
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await expect(page.locator("#basket-list")).to_have_text("Block A, row 1, seat 1")


@pytest.mark.usefixtures("club")
async def test_they_are_picked_with_a_mouse(mouse: Any, site: RecordedSite) -> None:
    await come_in(mouse, site)
    await use_code(mouse)
    await to_row_1(mouse)
    await mouse.mouse.click(*await middle(cursor(mouse)))
    await expect(mouse.locator(".hall-tip")).to_have_text(re.compile("seat 1, Front €90.00, Yours$"))
    await expect(mouse.locator("#basket-count")).to_have_text("1 ticket")


@pytest.mark.usefixtures("club")
async def test_the_overview_and_the_list_count_them_and_the_list_shows_the_same(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await expect(section(page, "A")).to_contain_text("50 free")
    await use_code(page)
    await expect(section(page, "A")).to_contain_text("60 free")
    await expect(page.locator("#section-A .left")).to_contain_text("60")
    await page.locator("#section-A button").click()
    seat = page.locator("#seats [data-seat=A-1-1]")
    await expect(seat).to_have_attribute("aria-label", "Row 1, seat 1, €90.00, available, kept for you")
    await expect(page.locator("#seats [data-kept]")).to_have_count(10)
    assert not [each for each in site.asked if each.path.endswith("/seats") and "code" in each.query]
    change_seats(site, "hall", ["A-1-1"], SOLD)
    await expect(seat).to_have_attribute("data-status", "sold")
    change_seats(site, "hall", ["A-1-1"], FREE)
    await expect(seat).to_have_attribute("aria-label", re.compile("available$"))


async def test_what_others_with_the_code_take_is_taken_within_seconds(
    page: Any, site: RecordedSite, club: Club
) -> None:
    await page.clock.install()
    await come_in(page, site)
    await use_code(page)
    await to_row_1(page)
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    club.free = {"seats": 10, "free": {"A": [[1, 9]]}}
    assert len(asked(site)) == 1
    async with page.expect_response("**/map/reserved*"):
        await page.clock.fast_forward(ASKS_AGAIN_MS)
    told = "Somebody was faster: Block A, row 1, seat 1. Please pick again."
    await expect(page.locator("#trouble-text")).to_have_text(told)
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")
    await expect_cursor(page, IN_A_BASKET)
    await expect(page.locator("#hall-kept")).to_have_text("9 seats that are kept for you are free.")
    club.free = ALL
    async with page.expect_response("**/map/reserved*"):
        await page.clock.fast_forward(ASKS_AGAIN_MS)
    await expect_cursor(page, KEPT)


async def test_a_refused_choice_asks_at_once(page: Any, site: RecordedSite, club: Club) -> None:
    await come_in(page, site)
    await use_code(page)
    await to_row_1(page)
    await page.keyboard.press("Enter")
    club.free = {"seats": 10, "free": {"A": [[1, 9]]}}
    site.answers[HOLD] = problem("seats-taken", "No.", seats=["A-1-1"])
    async with page.expect_response("**/map/reserved*"):
        await page.locator("#hold").click()
    await expect(page.locator("#trouble-text")).to_contain_text("Somebody was faster: Block A, row 1, seat 1.")
    await expect_cursor(page, IN_A_BASKET)
    assert asked(site) == ["code=FANCLUB"] * 2


@pytest.mark.usefixtures("club")
async def test_without_its_code_a_chosen_seat_is_given_up_and_said_so(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await use_code(page)
    await to_row_1(page)
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await use_code(page, "")
    told = "These seats are for fans with a code. Choose other seats, or enter your code."
    await expect(page.locator("#trouble-text")).to_have_text(told)
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")
    await expect(page.locator("#hall-kept")).to_be_hidden()
    await expect_cursor(page, IN_A_BASKET)


async def test_what_a_lane_opens_is_asked_for_on_entry(page: Any, site: RecordedSite) -> None:
    change_seats(site, "hall", ROW_1, HELD)
    site.change(EVENT, lane_opens_places=True)
    site.answers[RESERVED] = ALL
    await come_in(page, site)
    await expect(page.locator("#hall-kept")).to_be_visible()
    await to_row_1(page)
    await expect_cursor(page, KEPT)
    assert asked(site) == [""]


async def test_a_fan_of_another_lane_asks_once_and_an_event_without_reserved_seats_never(
    page: Any, site: RecordedSite
) -> None:
    await page.clock.install()
    for opens, asks in ((False, []), (True, [""])):
        site.change(EVENT, lane_opens_places=opens)
        await come_in(page, site)
        await open_section(page, "A")
        await page.clock.fast_forward(ASKS_AGAIN_MS)
        await expect(page.locator("#hall-kept")).to_be_hidden()
        assert asked(site) == asks


@pytest.mark.usefixtures("club")
async def test_a_code_that_opens_no_seats_is_asked_about_once(page: Any, site: RecordedSite) -> None:
    await page.clock.install()
    await come_in(page, site)
    async with page.expect_response("**/map/reserved*"):
        await use_code(page, "OTHER")
    for _ in range(3):
        await page.clock.fast_forward(ASKS_AGAIN_MS)
    await expect(page.locator("#hall-kept")).to_be_hidden()
    assert asked(site) == ["code=OTHER"]


@pytest.mark.usefixtures("club")
async def test_too_many_wrong_codes_are_said_and_the_code_before_opens_nothing(page: Any, site: RecordedSite) -> None:
    await page.clock.install()
    await come_in(page, site)
    await use_code(page)
    await to_row_1(page)
    await expect_cursor(page, KEPT)
    site.answers[RESERVED] = problem("too-many-wrong-codes", "Too many wrong codes.")
    await use_code(page, "SECOND")
    await expect(page.locator("#trouble-text")).to_have_text("Too many wrong codes.")
    await expect_cursor(page, IN_A_BASKET)
    site.answers[RESERVED] = ALL
    await page.clock.fast_forward(ASKS_AGAIN_MS)
    await expect_cursor(page, KEPT)
    assert asked(site) == ["code=FANCLUB", "code=SECOND", "code=SECOND"]


@pytest.mark.usefixtures("club")
@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=[] if name in ("en", "ar") else pytest.mark.proof) for name in LANGUAGES]
)
async def test_the_map_with_kept_seats_is_readable_in_every_language(
    page: Any, site: RecordedSite, language: str
) -> None:
    text = words(language)
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": site.url}])
    await come_in(page, site)
    await tab_to(page, "#type-code")
    await page.keyboard.type("FANCLUB")
    await page.keyboard.press("Enter")
    await expect(page.locator("#hall-kept")).to_have_text(text("hall_kept", n=10))
    found = list[str]()
    for place in ("map", "list"):
        if place == "map":
            await open_section(page, "A")
            await page.keyboard.press("Home")
            await expect_cursor(page, text("seat_kept"))
            await expect(page.locator("#hall-prices")).to_contain_text(text("legend_kept"))
        else:
            await page.locator("#hall-list").click()
            await expect(page.locator("#seats [data-kept]")).to_have_count(10)
        for width in (320, 390, 1280):
            await page.set_viewport_size({"width": width, "height": 844})
            found += [f"{place} at {width} px: {each}" for each in await layout_problems(page)]
        await page.set_viewport_size({"width": 390, "height": HIGHER_THAN_THE_PAGE_PX})
        found += [f"{place}: {each}" for each in [*await contrast_problems(page), *await axe_problems(page)]]
        await page.set_viewport_size({"width": 390, "height": 844})
    assert found == [], "\n".join(found)
