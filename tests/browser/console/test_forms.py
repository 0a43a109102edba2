"""The forms of the controls, alone: what they refuse, repeat, undo and say, and what a viewer sees of them; and the
second person: who asks waits, who decides is told what it is about, and then it is sent.
"""

import json
import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from features.console.schemas import ApprovalView, ApprovedCall
from features.support.schemas import Timeline
from shared.errors.problems import InvalidRequest, SecondPersonNeeded, VersionMismatch
from tests.browser.console.conftest import PHONE, OpenAlone, violations
from tests.browser.console.desk import LATE_MS
from tests.browser.console.recorded import Alone, Answer, RecordedDesk

pytestmark = pytest.mark.browser
KEYS_AT_ONCE = """() => {
    const press = key => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    document.activeElement.blur();
    press("Escape");
    document.querySelector("dialog[open]").close();
    press("p");
}"""
OBEYED = re.compile(r"Obeyed after \d\.\d s\.")


def room_path(desk: RecordedDesk) -> str:
    return f"/admin/events/{desk.event_id}/room"


def answer_with_room(desk: RecordedDesk, method: str, path: str, *rooms: dict[str, Any]) -> None:
    """Answers these writes with the room as it is then, each of a version of its own."""
    room, found = desk.alone.read(room_path(desk)), list[Answer | None]()
    for number, changes in enumerate(rooms, 1):
        version = room["version"] + number
        found.append(Answer(200, f'"{version}"', room | changes | {"version": version}))
    desk.alone.instead[method, path] = found


async def obey(desk: RecordedDesk, *, later: int, **vitals: dict[str, Any]) -> None:
    """The stream brings figures of a later version of the room."""
    now = desk.alone.recording.heard[-1]["vitals"]
    found = {part: now[part] | changes for part, changes in vitals.items()}
    room = now["room"] | {"version": desk.alone.read(room_path(desk))["version"] + later} | found.get("room", {})
    await desk.send("vitals", now | found | {"room": room, "at_ms": now["at_ms"] + 1000 * later})


async def test_the_screen_says_when_the_line_obeys_a_moved_rate(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    path = room_path(desk)
    set_per_s = desk.alone.read(path)["rate_per_s"]
    await desk.open("Rate")
    form, obeyed = desk.action("set-rate"), desk.page.locator("[data-obeyed]")
    slider = form.get_by_role("slider")
    await expect(desk.page.locator("[data-preview] dl")).to_contain_text("Line drains at")
    box = await slider.bounding_box()
    assert box
    await desk.page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    wanted = float(await slider.input_value())
    assert 15 < wanted < 35
    answer_with_room(desk, "PATCH", path, {"rate_per_s": wanted}, {"rate_per_s": set_per_s})
    await form.get_by_role("button", name="Set the rate", exact=True).click()
    await expect(form.locator("[data-done]")).to_contain_text(f"Set: {wanted:g}/s")
    await obey(desk, later=1, rate={"effective_per_s": 3.0})
    await expect(obeyed).to_have_text("Waits for the line to obey…")
    await obey(desk, later=2, rate={"effective_per_s": wanted})
    await expect(obeyed).to_have_text(OBEYED)
    await desk.undo("set-rate", "Back to 0.1/s")
    await obey(desk, later=3, rate={"effective_per_s": set_per_s})
    await expect(obeyed).to_have_text(OBEYED)
    bodies = [(sent.body["rate_per_s"], sent.body["reason"]) for sent in desk.alone.sent if sent.method == "PATCH"]
    assert bodies == [(wanted, None), (set_per_s, "Taken back in the console")]


async def test_a_click_without_an_answer_is_sent_again_under_the_same_key(alone: OpenAlone) -> None:
    desk = await alone()
    path, keys = f"{room_path(desk)}/admit", list[str]()
    desk.page.on("request", lambda one: keys.append(one.headers["idempotency-key"]) if path in one.url else None)
    desk.alone.instead["POST", path] = [None, Answer(200, None, {"called": 0, "asked": 50})]
    await desk.open("Pause")
    form = desk.action("admit")
    assert "No answer" in await desk.press("admit", "Admit fans now")
    await form.get_by_role("button", name="Admit fans now", exact=True).click()
    await expect(form.locator("[data-done]")).to_have_text("Called 0 of 50.")
    assert "Called 0 of 50." in await desk.press("admit", "Admit fans now")
    assert keys[0] == keys[1] != keys[2]


async def test_a_viewer_sees_everything_and_changes_nothing(alone: OpenAlone) -> None:
    async def as_viewer(page: Page, found: Alone) -> None:
        found.change("/console/session", role="viewer", name="promoter")

    desk = await alone(prepare=as_viewer)
    page, controls = desk.page, desk.page.get_by_role("navigation", name="Controls")
    await expect(controls.get_by_role("button", name="Pause")).to_be_disabled()
    await expect(controls).to_contain_text("look only")
    for name in ("Rate", "Message", "Stock", "Orders"):
        await desk.open(name)
        await expect(page.locator("dialog [data-why-not]").first).to_contain_text("signed in as viewer")
        if name != "Orders":
            await expect(page.locator("dialog [data-action]").first).to_be_visible()
        for button in await page.locator("dialog [data-action] button").all():
            await expect(button).to_be_disabled()
        await desk.close()
    await page.keyboard.press("p")
    await expect(desk.action("state").get_by_role("button", name="Pause")).to_be_disabled()
    assert desk.alone.sent == []


async def test_the_second_of_two_operators_sees_what_changed_and_can_apply_theirs_again(alone: OpenAlone) -> None:
    desk = await alone()
    path = room_path(desk)
    room = desk.alone.read(path)
    await desk.open("Rate")
    await desk.action("set-rate").locator("[name=rate_per_s]").fill("30")
    desk.alone.refuse("PATCH", path, VersionMismatch())
    theirs = room | {"rate_per_s": 12, "version": room["version"] + 1}
    desk.alone.instead["GET", path] = [Answer(200, '"77"', theirs)]
    await desk.action("set-rate").get_by_role("button", name="Set the rate", exact=True).click()
    conflict = desk.page.locator("[data-conflict]")
    await expect(conflict).to_contain_text("Somebody changed this meanwhile")
    await expect(conflict.get_by_role("listitem")).to_have_text([f"rate per s: {room['rate_per_s']} → 12"])
    answer_with_room(desk, "PATCH", path, {"rate_per_s": 30})
    await conflict.get_by_role("button", name="Apply mine again").click()
    await expect(desk.action("set-rate").locator("[data-done]")).to_contain_text("Set: 30/s")
    assert [sent.if_match for sent in desk.alone.sent if sent.method == "PATCH"] == [f'"{room["version"]}"', '"77"']


async def test_a_drawer_opened_at_once_after_another_stays(alone: OpenAlone) -> None:
    desk = await alone()
    await desk.open("Orders")
    await expect(desk.page.locator("dialog.drawer[open]")).to_be_visible()
    await desk.page.evaluate(KEYS_AT_ONCE)  # before the browser tells that the first one was closed
    await expect(desk.action("state")).to_be_visible()
    await desk.page.wait_for_timeout(100)
    await expect(desk.action("state")).to_be_visible()


async def test_the_keyboard_alone_pauses_and_the_focus_comes_back(alone: OpenAlone) -> None:
    desk = await alone()
    page, path = desk.page, f"{room_path(desk)}/pause"
    answer_with_room(desk, "POST", path, {"state": "paused", "shown_state": "paused"})
    await page.get_by_role("button", name="Message").focus()
    await page.keyboard.press("p")
    await expect(desk.action("state").locator("[name=reason]")).to_be_focused()
    await page.keyboard.type("the lights are out")
    assert desk.alone.sent == [], "it asks first"
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-room-state]")).to_have_text("Paused")
    assert [(sent.path, sent.body) for sent in desk.alone.sent] == [(path, {"reason": "the lights are out"})]
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog.drawer")).to_be_hidden()
    await expect(page.get_by_role("button", name="Message")).to_be_focused()


async def test_a_dispute_at_the_provider_is_decided_at_the_orders_desk(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    reference = desk.alone.recording.given[0]["paid"]
    path = f"/admin/orders/{reference}"
    timeline = desk.alone.read(f"{path}/timeline")
    disputed = timeline["order"] | {
        "status": "review", "end_reason": "disputed", "may_be_resolved_by": ["confirm", "refund"], "dispute": "open",
        "disputed_minor": timeline["order"]["total_minor"],
    }  # fmt: skip
    Timeline.model_validate(timeline | {"order": disputed})
    refunded = disputed | {"status": "refunded", "may_be_resolved_by": [], "dispute": None}
    answers = [Answer(200, None, timeline | {"order": order}) for order in (disputed, refunded)]
    desk.alone.instead["GET", f"{path}/timeline"] = list(answers)
    desk.alone.instead["POST", f"{path}/resolve"] = [Answer(200, None, refunded)]
    await desk.page.keyboard.press("/")
    await desk.page.locator("dialog [name=search]").fill(reference)
    await desk.page.locator(f"[data-order='{reference}'] button").click()
    await expect(desk.page.locator("[data-dispute]")).to_contain_text("withdrawn by the provider")
    form = desk.action("resolve")
    await form.get_by_role("button", name="Resolve…").click()
    await expect(form).to_contain_text("The buyer's bank disputes the payment.")
    await form.get_by_label("Decision").select_option(label="Void the tickets, and refund what is left")
    await desk.press("resolve", "Resolve", asks=False)
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Refunded", timeout=LATE_MS)
    [sent] = [sent.body for sent in desk.alone.sent]
    assert sent == {"decision": "refund", "return_to_sale": False, "reason": "for a test"}


async def test_new_access_codes_are_shown_once(alone: OpenAlone) -> None:
    desk = await alone("access_codes_are_made_and_revoked")
    page = desk.page
    await desk.open("More", "Access codes")
    await desk.press("new-codes", "New access codes", count=2, reason="members")
    shown = (await page.locator("[data-once] textarea").input_value()).split("\n")
    assert len(set(shown)) == 2
    await expect(page.locator("[data-once]").get_by_role("button", name="Copy")).to_be_visible()
    await desk.close()
    await desk.open("More", "Access codes")
    await expect(page.locator("dialog [data-code]")).to_have_count(2)
    await expect(page.locator("[data-once]")).to_have_count(0)
    content = await page.content()
    assert not any(code in content for code in shown)


async def test_what_cannot_be_taken_back_needs_the_typed_event_and_a_reason(alone: OpenAlone) -> None:
    desk = await alone()
    answer_with_room(desk, "POST", f"{room_path(desk)}/close", {"state": "closed", "shown_state": "closed"})
    await desk.page.keyboard.press("p")
    for name, button in (("reset", "Reset"), ("close", "Close")):
        form = desk.action(name)
        await form.get_by_role("button", name=f"{button}…", exact=True).click()
        send = form.get_by_role("button", name=button, exact=True)
        await expect(send).to_be_disabled()
        await form.locator("[name=typed]").fill(desk.event_id)
        await expect(send).to_be_disabled()
        await form.locator("[name=reason]").fill("the show is off")
        await form.locator("[name=typed]").fill(desk.event_id[:-1])
        await expect(send).to_be_disabled()
        await desk.page.keyboard.press("Enter")
        await form.locator("[name=typed]").fill(desk.event_id)
        await expect(send).to_be_enabled()
    assert desk.alone.sent == []
    await desk.action("close").get_by_role("button", name="Close", exact=True).click()
    await expect(desk.page.locator("[data-room-state]")).to_have_text("Closed")
    await expect(desk.action("close").locator("[data-done]")).to_have_text("Closed.")


async def test_a_refusal_is_told_beside_the_control(alone: OpenAlone) -> None:
    desk = await alone()
    path = f"/admin/inventory/events/{desk.event_id}/seats/block"
    refused = InvalidRequest(errors=[{"field": "quantity", "message": "Input should be less than 40"}])
    desk.alone.refuse("POST", path, refused)
    await desk.open("Stock")
    said = await desk.press("block", "Block or unblock places", verb="Block", which="ga", section="GA", quantity=41)
    assert "quantity: must be less than 40" in said
    await expect(desk.action("block").locator("[data-problem='422']")).to_be_visible()
    assert desk.alone.sent[0].body == {
        "ga": [{"section_id": "GA", "quantity": 41}], "reason": "for a test",
        "version": desk.alone.read(f"/admin/inventory/events/{desk.event_id}/stock")["version"],
    }  # fmt: skip


async def test_the_report_and_tables_are_links(alone: OpenAlone) -> None:
    desk = await alone()
    await desk.open("More", "Report and tables")
    links = desk.page.locator("dialog a")
    found = [await link.get_attribute("href") for link in await links.all()]
    report, of_event = f"/console/api/events/{desk.event_id}/report", f"events/{desk.event_id}"
    assert found == [
        f"{report}?download=true", report, f"/admin/orders/export.csv?event_id={desk.event_id}",
        f"/admin/orders/{of_event}/tickets.csv", f"/admin/inventory/{of_event}/sales.csv",
        f"/admin/inventory/{of_event}/seats.csv",
    ]  # fmt: skip


ID = "an-approval"
FIGURES = {"rate_per_s": 10.0, "return_to_sale": False}


def approval(status: str = "pending", *, of: str = "operator", call: ApprovedCall | None = None) -> dict[str, Any]:
    found = ApprovalView.model_validate({
        "id": ID, "control": "close_room", "role": "operator", "reason": "The hall is flooded", "figures": FIGURES,
        "requested_by": of, "status": status, "decided_by": None if status == "pending" else "ben",
        "expires_ms": 4_000_000_000_000, "call": call,
    })  # fmt: skip
    return found.model_dump(mode="json")


def path_of(desk: RecordedDesk, *more: str) -> str:
    return "/".join((f"/console/api/events/{desk.event_id}/approvals", *more))


async def ask(desk: RecordedDesk) -> None:
    """Closes the room, is refused, and asks a second person."""
    close = f"/admin/events/{desk.event_id}/room/close"
    desk.alone.refuse("POST", close, SecondPersonNeeded(control="close_room"))
    desk.alone.instead["POST", path_of(desk)] = [Answer(201, None, approval())]
    desk.alone.instead["DELETE", path_of(desk, ID)] = [Answer(204, None, None)]
    await desk.open("Pause…")
    form = desk.action("close")
    await form.get_by_role("button", name="Close…", exact=True).click()
    await form.locator("[name=reason]").fill("The hall is flooded")
    await form.locator("[name=typed]").fill(desk.event_id)
    await form.get_by_role("button", name="Close", exact=True).click()
    second = form.locator("[data-second-person]")
    await expect(second).to_contain_text("Another operator must agree")
    await expect(second.get_by_role("button", name="Ask a second person")).to_be_focused()
    await desk.page.keyboard.press("Enter")
    await expect(second).to_contain_text("Waiting for a second person")
    refused, asked = desk.alone.sent
    assert asked.body["control"] == "close_room"
    assert (json.loads(asked.body["body"]), asked.body["if_match"]) == (refused.body, refused.if_match)
    assert asked.body["idempotency_key"]


def approve(desk: RecordedDesk) -> dict[str, Any]:
    """The approval of what was asked for, as who asked is told it; the write is then accepted."""
    refused, asked = desk.alone.sent[:2]
    call = ApprovedCall(
        path=refused.path, body=asked.body["body"], if_match=asked.body["if_match"],
        idempotency_key=asked.body["idempotency_key"], approval="signed",
    )  # fmt: skip
    room = desk.alone.read(f"/admin/events/{desk.event_id}/room") | {"state": "closed", "shown_state": "closed"}
    desk.alone.instead["GET", path_of(desk)] = [Answer(200, None, {"approvals": [approval("approved", call=call)]})]
    desk.alone.instead["POST", refused.path] = [Answer(200, '"9"', room)]
    return approval("approved")


async def test_who_asks_waits_and_what_is_approved_is_sent_as_it_was_shown(alone: OpenAlone) -> None:
    desk = await alone()
    approvals: list[str | None] = []
    desk.page.on("request", lambda one: approvals.append(one.headers.get("onsale-approval")))
    await ask(desk)
    assert await violations(desk.page) == []
    await desk.send("approvals", [approve(desk)])
    await expect(desk.action("close").locator("[data-done]")).to_have_text("Closed.")
    refused, _, withdrawn, sent = desk.alone.sent
    assert (withdrawn.method, withdrawn.path) == ("DELETE", path_of(desk, ID))
    assert (sent.path, sent.body, sent.if_match) == (refused.path, refused.body, refused.if_match)
    assert [one for one in approvals if one] == ["signed"]


async def test_a_refusal_is_told_in_the_form(alone: OpenAlone) -> None:
    desk = await alone()
    await ask(desk)
    await desk.send("approvals", [approval("refused")])
    form = desk.action("close")
    await expect(form.locator("[data-second-person=refused]")).to_contain_text("ben has refused")
    async with desk.page.expect_response("**/approvals/**"):
        await form.get_by_role("button", name="Close", exact=True).click()
    assert [sent.method for sent in desk.alone.sent] == ["POST", "POST", "DELETE"], "it is put away"


async def test_who_left_the_form_withdraws_or_does_it_on_the_screen(alone: OpenAlone) -> None:
    desk = await alone(size=PHONE)
    await ask(desk)
    await desk.page.keyboard.press("Escape")
    await desk.send("approvals", [approval()])
    mine = desk.page.locator("[data-approval=pending]")
    await expect(mine).to_contain_text("You ask to close the room")
    await expect(mine.get_by_role("button")).to_have_text(["Withdraw"])
    await desk.send("approvals", [approve(desk)])
    agreed = desk.page.locator("[data-approval=approved]")
    await expect(agreed).to_contain_text("ben agrees that you close the room")
    async with desk.page.expect_response("**/room/close"):
        await agreed.get_by_role("button", name="Do it now").click()
    await expect(desk.page.locator("[data-approval]")).to_have_count(0)
    assert desk.alone.sent[-1].path.endswith("/room/close")


@pytest.mark.parametrize(
    ("button", "decision", "status"), [("Approve", "approve", "approved"), ("Refuse", "refuse", "refused")]
)
async def test_another_operator_is_told_what_it_is_about_and_decides(
    alone: OpenAlone, button: str, decision: str, status: str
) -> None:
    desk = await alone(size=PHONE)
    desk.alone.instead["POST", path_of(desk, ID, decision)] = [Answer(200, None, approval(status, of="ana"))]
    await desk.send("approvals", [approval(of="ana")])
    notice = desk.page.locator("[data-approval=pending]")
    await expect(notice).to_contain_text("ana asks to close the room")
    await expect(notice).to_contain_text("The hall is flooded · Rate per s: 10 · Return to sale: no")
    assert await violations(desk.page) == []
    await notice.get_by_role("button", name=button).focus()
    await desk.page.keyboard.press("Enter")
    await expect(desk.page.locator("[data-approval]")).to_have_count(0)
    assert [sent.path for sent in desk.alone.sent] == [path_of(desk, ID, decision)]


async def test_a_viewer_decides_nothing(alone: OpenAlone) -> None:
    async def as_viewer(page: Page, found: Alone) -> None:
        found.change("/console/session", role="viewer", name="vic")

    desk = await alone(prepare=as_viewer)
    await desk.send("approvals", [approval(of="ana")])
    notice = desk.page.locator("[data-approval=pending]")
    await expect(notice).to_contain_text("An operator decides.")
    await expect(notice.get_by_role("button")).to_have_count(0)
