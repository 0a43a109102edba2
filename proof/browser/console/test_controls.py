"""The controls of the console at a running suite: how soon the line obeys, what roles, keys and conflicts do; and two
operators at two screens: one asks for what cannot be taken back, the other approves, and it happens.
"""

import re
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import httpx
import pytest
from playwright import async_api
from playwright.async_api import Locator, Page, expect

from onsale.local.key_file import rotating_keys
from shared.security.auth import Operator, OperatorSession, sign_session
from tests.browser.console.conftest import DESKTOP, PHONE, Open, violations
from tests.support.running.suite import RunningSuite, fan_of, problem, running_suite
from tests.support.wait import wait_until

pytestmark = pytest.mark.browser
SECTIONS = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000, "fee_minor": 0}]
OBEYS_MS = 8_000
WITHIN_S, RESTS_MS = 0.5, 700  # half of what is promised; a button rests after a press


def action(page: async_api.Page, name: str) -> async_api.Locator:
    return page.locator(f"dialog [data-action='{name}']")


async def press(page: async_api.Page, name: str, button: str) -> None:
    await action(page, name).get_by_role("button", name=button, exact=True).click()


async def give_reason(page: async_api.Page, name: str) -> None:
    await action(page, name).locator("[name=reason]").fill("a test")


async def open_drawer(page: async_api.Page, button: str) -> None:
    await page.get_by_role("navigation", name="Controls").get_by_role("button", name=button).click()


async def room(suite: RunningSuite, event_id: str) -> dict[str, Any]:
    async with suite.operator() as operator:
        return dict((await operator.get(f"/admin/events/{event_id}/room")).json())


async def change_room(suite: RunningSuite, event_id: str, **changes: Any) -> None:
    async with suite.operator() as operator:
        answer = await operator.patch(f"/admin/events/{event_id}/room", json=changes)
        assert answer.is_success, answer.text


async def test_the_line_obeys_a_moved_rate_within_a_second_and_the_screen_says_so(
    suite: RunningSuite, open_page: Open
) -> None:
    event_id = await suite.open_event(sections=SECTIONS, room={"rate_per_s": 50, "burst": 50})
    page = await open_page(suite, f"events/{event_id}")
    await open_drawer(page, "Rate")
    slider = action(page, "set-rate").get_by_role("slider")
    await expect(page.locator("[data-preview]")).to_contain_text("Nobody waits")
    box = await slider.bounding_box()
    assert box
    await page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    wanted = float(await slider.input_value())
    assert 15 < wanted < 35
    await press(page, "set-rate", "Set the rate")
    shown_s = [await obeyed_s(page)]
    assert await obeys(suite, event_id, wanted), "what the screen shows is what the gatekeeper does"
    await press(page, "set-rate", "Back to 50/s")
    await expect(action(page, "set-rate")).to_contain_text("Taken back.")
    shown_s.append(await obeyed_s(page))
    assert (await room(suite, event_id))["rate_per_s"] == 50
    for rate in (40, 30, 20):
        await page.wait_for_timeout(RESTS_MS)
        await action(page, "set-rate").locator("input[name=rate_per_s]").first.fill(str(rate))
        await press(page, "set-rate", "Set the rate")
        shown_s.append(await obeyed_s(page))
    assert median(shown_s) <= WITHIN_S, shown_s


async def test_a_pause_and_its_end_are_obeyed_within_a_second_and_the_screen_says_so(
    suite: RunningSuite, open_page: Open
) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    page = await open_page(suite, f"events/{event_id}")
    await open_drawer(page, "Pause")
    shown_s = []
    for button, state in (("Pause", "paused"), ("Resume", "open"), ("Pause", "paused"), ("Resume", "open")):
        await press(page, "state", button)
        shown_s.append(await obeyed_s(page))
        await expect(page.locator(f".bar [data-state={state}]")).to_be_attached(timeout=100)
        assert (await room(suite, event_id))["shown_state"] == state
        await page.wait_for_timeout(RESTS_MS)
    assert median(shown_s) <= WITHIN_S, shown_s


async def obeyed_s(page: async_api.Page) -> float:
    """How long the line took to obey, as the screen says."""
    words = page.locator("[data-obeyed]", has_text=re.compile("^Obeyed"))
    found = re.fullmatch(r"Obeyed after (\d+\.\d) s\.", await words.inner_text(timeout=OBEYS_MS))
    assert found
    return float(found[1])


async def obeys(suite: RunningSuite, event_id: str, wanted: float) -> bool:
    return bool((await room(suite, event_id))["effective_rate_per_s"] <= wanted)


async def test_a_click_without_an_answer_is_sent_again_under_the_same_key(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    page = await open_page(suite, f"events/{event_id}")
    keys: list[str] = []

    async def lose(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        await (route.abort() if len(keys) == 1 else route.fallback())

    await page.route("**/room/admit", lose)
    await open_drawer(page, "Pause")
    await press(page, "admit", "Admit fans now…")
    await give_reason(page, "admit")
    await press(page, "admit", "Admit fans now")
    await expect(action(page, "admit").get_by_role("alert")).to_contain_text("No answer")
    await press(page, "admit", "Admit fans now")
    await expect(action(page, "admit").locator("[data-done]")).to_have_text("Called 0 of 50.")
    await press(page, "admit", "Admit fans now…")
    await give_reason(page, "admit")
    await press(page, "admit", "Admit fans now")
    await expect(action(page, "admit").locator("[data-done]")).to_have_text("Called 0 of 50.")
    assert keys[0] == keys[1] != keys[2]


async def test_a_viewer_sees_everything_and_changes_nothing(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    page = await open_page(suite, signed_in=False)
    await page.context.add_cookies([{"name": "onsale_operator", "value": viewer(suite), "url": suite.url}])
    await page.goto(f"{suite.url}/console/events/{event_id}")
    controls = page.get_by_role("navigation", name="Controls")
    await expect(controls.get_by_role("button", name="Pause")).to_be_disabled()
    await expect(controls).to_contain_text("look only")
    for name in ("Rate", "Message", "Stock", "Orders"):
        await open_drawer(page, name)
        await expect(page.locator("dialog [data-why-not]").first).to_contain_text("signed in as viewer")
        if name != "Orders":
            await expect(page.locator("dialog [data-action]").first).to_be_visible()
        for button in await page.locator("dialog [data-action] button").all():
            await expect(button).to_be_disabled()
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog.drawer")).to_be_hidden()
    await page.keyboard.press("p")
    await expect(action(page, "state").get_by_role("button", name="Pause")).to_be_disabled()


def viewer(suite: RunningSuite) -> str:
    """The session of somebody who may only view."""
    keys = rotating_keys(suite.data_dir).keyring("service", time.time())
    return sign_session(keys, OperatorSession(Operator("promoter", "viewer"), "", int(time.time()) + 600))


async def test_the_second_of_two_operators_sees_what_changed_and_can_apply_theirs_again(
    suite: RunningSuite, open_page: Open
) -> None:
    event_id = await suite.open_event(sections=SECTIONS, room={"rate_per_s": 50, "burst": 50})
    page = await open_page(suite, f"events/{event_id}")
    await open_drawer(page, "Rate")
    await action(page, "set-rate").locator("[name=rate_per_s]").fill("30")
    await change_room(suite, event_id, rate_per_s=12, reason="the bar is full")
    await press(page, "set-rate", "Set the rate")
    conflict = page.locator("[data-conflict]")
    await expect(conflict).to_contain_text("Somebody changed this meanwhile")
    await expect(conflict.get_by_role("listitem")).to_have_text(["rate per s: 50 → 12"])
    assert (await room(suite, event_id))["rate_per_s"] == 12
    await press(page, "set-rate", "Apply mine again")
    await expect(action(page, "set-rate").locator("[data-done]")).to_contain_text("Set: 30/s")
    assert (await room(suite, event_id))["rate_per_s"] == 30


async def test_the_keyboard_alone_pauses_and_the_focus_comes_back(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    page = await open_page(suite, f"events/{event_id}")
    await page.get_by_role("button", name="Message").focus()
    await page.keyboard.press("p")
    await expect(action(page, "state").locator("[name=reason]")).to_be_focused()
    await page.keyboard.type("the lights are out")
    assert (await room(suite, event_id))["state"] == "open", "it asks first"
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-room-state]")).to_have_text("Paused")
    assert (await room(suite, event_id))["state"] == "paused"
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog.drawer")).to_be_hidden()
    await expect(page.get_by_role("button", name="Message")).to_be_focused()
    await expect(page.locator("[data-change=pause]")).to_contain_text("the lights are out", timeout=OBEYS_MS)


async def test_a_dispute_at_the_provider_is_decided_at_the_orders_desk(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    async with suite.browser() as browser, httpx.AsyncClient(base_url=suite.engines["sandbox_url"]) as provider:
        fan = await fan_of(browser, event_id).come_in()
        order = await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]}))
        [charge] = (await provider.get("/charges", params={"reference": order["reference"]})).json()["charges"]
        disputed = await provider.post(f"/charges/{charge['id']}/dispute", json={"status": "open"})
        assert disputed.is_success, disputed.text
    page = await open_page(suite, f"events/{event_id}")
    await expect(page.get_by_text(re.compile("waits? for a decision")).first).to_be_visible(timeout=10_000)
    await page.keyboard.press("/")
    await page.locator("dialog [name=search]").fill(order["reference"])
    await page.locator(f"[data-order='{order['reference']}'] button").click()
    await expect(page.locator("[data-dispute]")).to_contain_text("withdrawn by the provider")
    await press(page, "resolve", "Resolve…")
    decision = action(page, "resolve")
    await expect(decision).to_contain_text("The buyer's bank disputes the payment.")
    await decision.get_by_label("Decision").select_option(label="Void the tickets, and refund what is left")
    await give_reason(page, "resolve")
    await press(page, "resolve", "Resolve")
    await expect(page.locator("[data-order-status]")).to_have_text("Refunded", timeout=10_000)


KEYS = {name: f"the-key-of-{name}-for-this-test" for name in ("operator", "ana", "ben", "vic")}
ROLES = {"operator": "admin", "ana": "operator", "ben": "operator", "vic": "viewer"}
LATE_MS = 20_000


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningSuite]:
    """A suite where closing a room and refunding an event take two operators."""
    keys = ",".join(f"{name}:{ROLES[name]}:{key}" for name, key in KEYS.items())
    environ = {"ONSALE_ADMIN_KEYS": keys, "ONSALE_ADMIN_KEY": KEYS["operator"]}
    with running_suite(**environ, ONSALE_TWO_PERSONS="close_room,refund_event") as strict:
        (strict.data_dir / "admin.key").write_text(KEYS["operator"])
        yield strict


async def sit(strict: RunningSuite, open_page: Open, name: str, event_id: str, size: Any = DESKTOP) -> Page:
    """A screen of this event, with this operator before it."""
    page = await open_page(strict, signed_in=False, size=size)
    answer = await page.context.request.post(f"{strict.url}/console/session", data={"key": KEYS[name]})
    assert answer.ok, await answer.text()
    await page.goto(f"{strict.url}/console/events/{event_id}")
    await page.locator("[data-tile]").first.wait_for(timeout=LATE_MS)
    return page


def form(page: Page, name: str) -> Locator:
    return page.locator(f"dialog [data-action='{name}']")


async def ask(page: Page, event_id: str, *buttons: str, name: str, label: str, reason: str) -> Locator:
    """Fills the form in, sends it and, as it is refused, asks a second person; what the form then says."""
    for button in buttons:
        await page.get_by_role("navigation", name="Controls").get_by_role("button", name=button).click()
    at = form(page, name)
    await at.get_by_role("button", name=f"{label}…", exact=True).click()
    await at.locator("[name=reason]").fill(reason)
    await at.locator("[name=typed]").fill(event_id)
    await at.get_by_role("button", name=label, exact=True).click()
    second = at.locator("[data-second-person]")
    await expect(second).to_contain_text("Another operator must agree", timeout=LATE_MS)
    await expect(second.get_by_role("button", name="Ask a second person")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(second).to_contain_text("Waiting for a second person", timeout=LATE_MS)
    return at


async def room_of_two(strict: RunningSuite, event_id: str) -> str:
    async with strict.operator() as operator:
        return str((await operator.get(f"/admin/events/{event_id}/room")).json()["state"])


async def test_one_asks_another_approves_and_the_room_closes(strict: RunningSuite, open_page: Open) -> None:
    event_id = await strict.open_event()
    ana = await sit(strict, open_page, "ana", event_id)
    ben = await sit(strict, open_page, "ben", event_id, PHONE)
    vic = await sit(strict, open_page, "vic", event_id)
    waits = await ask(ana, event_id, "Pause…", name="close", label="Close", reason="The hall is flooded")
    assert await violations(ana) == []
    assert await room_of_two(strict, event_id) == "open"
    for page in (ben, vic):
        notice = page.locator("[data-approval=pending]")
        await expect(notice).to_contain_text("ana asks to close the room", timeout=LATE_MS)
        await expect(notice).to_contain_text("The hall is flooded")
    await expect(vic.locator("[data-approval]").get_by_role("button")).to_have_count(0)
    assert await violations(ben) == []
    await ben.locator("[data-approval]").get_by_role("button", name="Approve").focus()
    await ben.keyboard.press("Enter")
    await expect(waits.locator("[data-done]")).to_have_text("Closed.", timeout=LATE_MS)
    assert await room_of_two(strict, event_id) == "closed"
    await expect(ben.locator("[data-approval]")).to_have_count(0)
    await expect(ben.locator(".timeline")).to_contain_text("ana, approved by ben", timeout=LATE_MS)
    async with strict.operator() as operator:
        entries = (await operator.get(f"/admin/queue/events/{event_id}/changes")).json()["changes"]
    assert ("close", "ana, approved by ben", "The hall is flooded") in {
        (entry["action"], entry["actor"], entry["reason"]) for entry in entries
    }


async def test_nobody_approves_alone_and_a_refusal_changes_nothing(strict: RunningSuite, open_page: Open) -> None:
    event_id = await strict.open_event()
    ana = await sit(strict, open_page, "ana", event_id)
    again = await sit(strict, open_page, "ana", event_id)
    ben = await sit(strict, open_page, "ben", event_id)
    waits = await ask(ana, event_id, "Orders", name="refund-all", label="Refund the whole event", reason="Cancelled")
    mine = again.locator("[data-approval=pending]")
    await expect(mine).to_contain_text("You ask to refund the whole event", timeout=LATE_MS)
    await expect(mine.get_by_role("button")).to_have_text(["Withdraw"])
    path = f"{strict.url}/console/api/events/{event_id}/approvals"
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEYS['ana']}"}) as client:
        [asked] = (await client.get(path)).json()["approvals"]
        assert problem(await client.post(f"{path}/{asked['id']}/approve")) == (403, "second-person-needed")
    notice = ben.locator("[data-approval=pending]")
    await expect(notice).to_contain_text("Rate per s: 10 · Return to sale: no", timeout=LATE_MS)
    await notice.get_by_role("button", name="Refuse").click()
    await expect(waits.locator("[data-second-person=refused]")).to_contain_text("ben has refused", timeout=LATE_MS)
    await waits.get_by_role("button", name="Close").click()
    await expect(again.locator("[data-approval]")).to_have_count(0, timeout=LATE_MS)
    async with strict.operator() as operator:
        answer = await operator.get(f"/admin/orders/events/{event_id}/refund")
    assert answer.status_code == 404, "no refund has begun"


async def test_who_left_the_form_withdraws_or_does_it_on_the_screen(strict: RunningSuite, open_page: Open) -> None:
    event_id = await strict.open_event()
    ana = await sit(strict, open_page, "ana", event_id, PHONE)
    ben = await sit(strict, open_page, "ben", event_id)
    await ask(ana, event_id, "Pause…", name="close", label="Close", reason="Enough")
    await ana.reload()
    await ana.locator("[data-approval=pending]").get_by_role("button", name="Withdraw").click(timeout=LATE_MS)
    await expect(ben.locator("[data-approval]")).to_have_count(0, timeout=LATE_MS)
    await ask(ana, event_id, "Pause…", name="close", label="Close", reason="Enough")
    await ana.keyboard.press("Escape")
    await ben.locator("[data-approval=pending]").get_by_role("button", name="Approve").click(timeout=LATE_MS)
    agreed = ana.locator("[data-approval=approved]")
    await expect(agreed).to_contain_text("ben agrees that you close the room", timeout=LATE_MS)
    await agreed.get_by_role("button", name="Do it now").click()

    async def is_closed() -> bool:
        return await room_of_two(strict, event_id) == "closed"

    await wait_until(is_closed)
    await expect(ana.locator("[data-approval]")).to_have_count(0)
