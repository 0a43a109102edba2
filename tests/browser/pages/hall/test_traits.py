"""Places for wheelchairs and companions, with a restricted view, without steps: by symbol, shape and words on the map
and in the lists; and the choice to see only places for wheelchair users, the same in all of them.
"""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.hall_steps import cursor, expect_cursor, middle, open_section, pixels, section, until_painted
from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import come_in

RUNS = {"wheelchair": [[0, 1], [59, 59]], "companion": [[2, 2]], "restricted_view": [[8, 9]], "easy_access": [[0, 9]]}
A = "/events/hall/sections/A/seats"


def give_traits(site: RecordedSite, runs: dict[str, list[list[int]]] = RUNS) -> None:
    """Block A has all traits, in its first row and at its last seat; the floor is without steps."""
    event, hall = site.answers["GET /events/hall"], site.answers["GET /events/hall/map"]
    traits = {"A": [*runs], "GA1": ["easy_access"]}
    sections = [{**each, "traits": traits.get(each["section_id"], [])} for each in event["sections"]]
    site.change("GET /events/hall", sections=sections)
    shapes = [
        {**each, "rows": {**each["rows"], "traits": runs}} if each["section_id"] == "A" else each
        for each in hall["sections"]
    ]
    site.change("GET /events/hall/map", sections=shapes)
    seats = [
        {**seat, "traits": [trait for trait, runs in runs.items() if any(first <= n <= last for first, last in runs)]}
        for n, seat in enumerate(site.answers[f"GET {A}"]["seats"])
    ]
    site.change(f"GET {A}", seats=seats)


def filters(page: Any, where: str) -> Any:
    return page.locator(where).get_by_label("Only places for wheelchair users and companions")


async def test_the_map_says_what_places_are(page: Any, site: RecordedSite) -> None:
    give_traits(site)
    await come_in(page, site)
    words = ["Wheelchair places", "Companion places", "Restricted view", "No steps"]
    await expect(page.locator("#hall-traits li")).to_have_text(words)
    await expect(page.locator("#hall-traits svg")).to_have_count(4)
    await expect(section(page, "A")).to_have_attribute(
        "title", f"Block A, from €50.00, 60 of 60 left, {', '.join(words)}"
    )
    await open_section(page, "A")
    for _ in range(5):
        await page.keyboard.press("ArrowLeft")
    await expect_cursor(page, "^Block A: Row 1, seat 1, wheelchair place, no steps, Front €90.00, available$")
    for _ in range(2):
        await page.keyboard.press("ArrowRight")
    await expect_cursor(page, "Row 1, seat 3, companion place, no steps, ")
    await page.keyboard.press("End")
    await expect_cursor(page, "Row 1, seat 10, restricted view, no steps, ")
    await expect(page.locator("#announcer")).to_contain_text("seat 10, restricted view")


@pytest.mark.parametrize("forced", ["none", pytest.param("active", marks=pytest.mark.proof)])
@pytest.mark.parametrize("steps", [0, 1, 2], ids=["with a number", "as a shape", "as a dot"])
async def test_each_trait_is_painted_in_its_own_way_whatever_the_colours(
    page: Any, site: RecordedSite, forced: str, steps: int
) -> None:
    await page.emulate_media(forced_colors=forced)
    shown = []
    for runs in ({}, {}, *({trait: [[0, 0]]} for trait in RUNS)):
        give_traits(site, runs)
        await come_in(page, site)
        await open_section(page, "A")
        for _ in range(steps):
            await page.locator(".hall-tools [data-tool='−']").click()
        shown.append(await at_rest(page))
    assert shown[0] == shown[1]
    assert len(set(shown)) == 1 + len(RUNS)


async def at_rest(page: Any) -> str:
    """The canvas once it shows the same twice."""
    before, now = "", await pixels(page)
    while before != now:
        before, now = now, await pixels(page)
    return now


async def test_only_places_for_wheelchair_users_are_shown_and_picked(page: Any, site: RecordedSite) -> None:
    give_traits(site)
    await come_in(page, site)
    await filters(page, "#hall").check()
    for where in ("#hall", "#stock"):
        await expect(filters(page, where)).to_be_checked()
    assert await page.locator("#sections .section:visible").count() == 1
    await expect(section(page, "B")).to_have_attribute("title", "Block B, €40.00, No places for wheelchair users")
    await expect(page.locator("path.hall-section[data-other]")).to_have_count(2)
    await open_section(page, "A")
    await expect_cursor(page, "Row 1, seat 3, companion place")
    await page.keyboard.press("ArrowRight")
    await expect_cursor(page, "Row 6, seat 10, wheelchair place")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Home")
    await expect_cursor(page, "Row 1, seat 1, wheelchair place")
    await page.keyboard.press("ArrowDown")
    await expect_cursor(page, "Row 6, seat 10, wheelchair place")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    shown = await pixels(page)
    await filters(page, "#hall").uncheck()
    await until_painted(page, shown)
    await cursor(page).focus()
    await page.keyboard.press("ArrowLeft")
    await expect_cursor(page, "Row 6, seat 9, €50.00")


async def test_another_seat_is_not_picked_while_it_is_not_looked_for(mouse: Any, site: RecordedSite) -> None:
    page = mouse
    give_traits(site)
    await come_in(page, site)
    await open_section(page, "A")
    x, y = await middle(cursor(page))
    await filters(page, "#hall").check()
    await page.mouse.click(x, y)
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")


async def test_the_list_says_the_same_and_shows_the_same(page: Any, site: RecordedSite) -> None:
    give_traits(site)
    await come_in(page, site)
    all_traits = "Wheelchair places, Companion places, Restricted view, No steps"
    await expect(page.locator("#section-A .traits")).to_have_text(all_traits)
    await expect(page.locator("#section-GA1 .traits")).to_have_text("No steps")
    await expect(page.locator("#section-B .traits")).to_have_count(0)
    await page.locator("#section-A .action").click()
    first = page.locator("#seats [data-seat=A-1-1]")
    await expect(first).to_have_attribute("aria-label", "Row 1, seat 1, wheelchair place, no steps, €90.00, available")
    await expect(first.locator("svg[data-trait=wheelchair]")).to_be_visible()
    await expect(page.locator("#seats-traits li")).to_have_count(4)
    await filters(page, "#seat-panel").check()
    await expect(page.locator("#seats .row:visible")).to_have_count(2)
    await expect(page.locator("#seats .seat:visible")).to_have_text(["1", "2", "3", "10"])
    await first.focus()
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#seats [data-seat=A-6-10]")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("End")
    await expect(page.locator("#seats [data-seat=A-1-3]")).to_be_focused()


async def test_an_event_without_such_places_has_no_choice(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await expect(page.locator(".filter")).to_have_count(0)
    await expect(page.locator("#hall-traits li, .section .traits")).to_have_count(0)


@pytest.mark.parametrize(("language", "says"), [("de", "Rollstuhlplatz"), ("ar", "مكان لكرسي متحرك")])
async def test_other_languages_say_it_too(page: Any, site: RecordedSite, language: str, says: str) -> None:
    give_traits(site)
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": site.url}])
    await come_in(page, site)
    await page.locator("#section-A .action").click()
    label = await page.locator("#seats [data-seat=A-1-1]").get_attribute("aria-label")
    assert says in label
