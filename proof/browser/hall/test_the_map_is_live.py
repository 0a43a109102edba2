"""The map shows other fans' holds as they happen, also without a stream, and says in words which seat was taken."""

import re
from typing import Any

from playwright.async_api import expect

from features.hall import seat_codes
from tests.browser.hall_steps import (
    AVAILABLE,
    IN_A_BASKET,
    another_fan,
    cursor,
    expect_cursor,
    open_hall,
    open_section,
    pixels,
    until_painted,
)
from tests.browser.steps import CALL_TIMEOUT_MS, expect_connection
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

SEATS = 100  # of the event of `open_hall`
STATE = re.compile(r"/map/state$")


async def seat_id(page: Any) -> str:
    """The seat of section A that the cursor stands on."""
    row, number = re.findall(r"\d+", (await cursor(page).get_attribute("aria-label")).split(":")[1])[:2]
    return f"A-{row}-{number}"


async def test_another_fans_hold_appears_and_what_is_given_back_reappears(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await expect_cursor(page, "Block A: Row 1", AVAILABLE)
    free = await pixels(page)
    async with another_fan(suite, event_id) as other:
        held_by_other = await other.hold({"seats": [await seat_id(page)]})
        await expect_cursor(page, IN_A_BASKET)
        held = await until_painted(page, free)
        await other.release(held_by_other)
        await expect_cursor(page, AVAILABLE)
        assert await until_painted(page, held) == free


async def test_a_seat_that_somebody_else_takes_is_explained_in_words(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    async with another_fan(suite, event_id) as other:
        name = await page.locator("#basket-list").inner_text()
        await other.hold({"seats": [await seat_id(page)]})
        await expect(page.locator("#trouble-text")).to_have_text(f"Somebody was faster: {name}. Please pick again.")
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")
    await expect_cursor(page, IN_A_BASKET)


async def test_an_own_hold_is_never_explained_as_somebody_elses(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await page.keyboard.press("Enter")
    answers: list[tuple[Any, Any]] = []

    async def keep_answer(route: Any) -> None:
        answers.append((route, await route.fetch()))

    await page.route("**/reservations", keep_answer)
    await page.locator("#hold").click()
    await wait_until(lambda: answers)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": ["A-1-1"]})
        await cursor(page).focus()
        await page.keyboard.press("Home")
        await expect_cursor(page, "Row 1, seat 1,", IN_A_BASKET)  # so the own hold was heard, too
    await expect(page.locator("#trouble")).to_be_hidden()
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    [(route, answer)] = answers
    await route.fulfill(response=answer)
    await expect(page.locator("#held")).to_be_visible()


async def test_without_a_stream_the_map_asks_for_the_states(page: Any, suite: RunningSuite) -> None:
    await page.route("**/sections/updates*", lambda route: route.abort())
    event_id = await open_hall(page, suite)
    await expect_connection(page, "polling")
    await open_section(page, "A")
    await expect_cursor(page, AVAILABLE)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": [await seat_id(page)]})
        await expect_cursor(page, IN_A_BASKET)


async def test_what_happened_while_the_stream_was_cut_is_seen_afterwards(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await expect_cursor(page, AVAILABLE)
    seat = await seat_id(page)
    await page.context.set_offline(True)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": [seat]})
        await expect_cursor(page, AVAILABLE)
        await page.context.set_offline(False)
        await expect_cursor(page, IN_A_BASKET)


async def test_a_hall_that_has_other_seats_by_now_leaves_the_list(page: Any, suite: RunningSuite) -> None:
    asked: list[Any] = []
    await page.route("**/sections/updates*", lambda route: route.abort())
    await page.route(STATE, lambda route: asked.append(route))
    await open_hall(page, suite)
    await wait_until(lambda: asked)
    body = seat_codes.encode_state(1, 20, bytes(SEATS + 4))
    await asked[0].fulfill(body=body, content_type="application/octet-stream")
    await expect(page.locator("#hall")).to_be_hidden(timeout=CALL_TIMEOUT_MS)
    await page.locator("#section-A button").click()
    await expect(page.locator("#seats .seat")).to_have_count(60)
