"""The second person on the screen, alone: who asks waits, who decides is told what it is about, and then it is sent."""

import json
from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.contracts.admin.approvals import ApprovalView, ApprovedCall
from shared.errors.problems import SecondPersonNeeded
from tests.browser.console.conftest import PHONE, OpenAlone, violations
from tests.browser.console.recorded import Alone, Answer, RecordedDesk

pytestmark = pytest.mark.browser
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
