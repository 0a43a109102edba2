"""The controls of the waiting room: its state, rate, message, settings, access codes and lottery."""

import re
from typing import Any

from playwright.async_api import expect

from shared.runtime.clock import now_ms, rfc3339
from tests.browser.console.desk import LANES, LATE_MS, Desk, script
from tests.support.running.suite import fan_of
from tests.support.wait import wait_until

KNOWN_AFTER_MS = 10_000


@script("set_room_state", "rebuild_room", "reset_room", event=lambda: {"open": False})
async def the_room_is_opened_paused_drained_rebuilt_closed_and_reset(desk: Desk) -> None:
    await expect(desk.page.locator("[data-state=draft]")).to_be_visible()
    await desk.open("Open…")
    assert "Opened." in await desk.press("state", "Open", asks=False, reason="doors")
    await desk.hears(expect(desk.page.locator(".bar [data-state=open]")).to_be_attached(timeout=LATE_MS))
    assert "Paused." in await desk.press("state", "Pause", asks=False, reason="the card terminal is down")
    assert "Resumed." in await desk.press("state", "Resume", asks=False, reason="it works again")
    assert "Draining" in await desk.press("drain", "Drain", reason="enough")
    assert (await desk.room())["state"] == "draining"
    await desk.undo("drain", "Open again")
    assert "Rebuilt" in await desk.press("rebuild", "Rebuild", reason="a new Redis")
    epoch = (await desk.room())["epoch"]
    assert "new line" in await desk.press("reset", "Reset", reason="a dress rehearsal", typed=desk.event_id)
    assert (await desk.room())["epoch"] == epoch + 1
    assert "Closed." in await desk.press("close", "Close", reason="over", typed=desk.event_id)
    await desk.hears(expect(desk.page.locator(".bar [data-state=closed]")).to_be_attached(timeout=LATE_MS))
    assert await desk.log() >= {
        ("pause", "operator", "the card terminal is down"), ("resume", "operator", "it works again"),
        ("drain", "operator", "enough"), ("rebuild", "operator", "a new Redis"),
        ("reset", "operator", "a dress rehearsal"), ("close", "operator", "over"),
    }  # fmt: skip


async def two_join(desk: Any) -> None:
    for _ in range(2):
        await fan_of(desk.browser, desk.event_id).join()


@script(
    "change_room", "plan_capacity", "set_message", "admit",
    event=lambda: {"room": {"rate_per_s": 50, "burst": 1}},
)  # fmt: skip
async def the_line_is_tuned_told_something_and_called_by_hand(desk: Desk) -> None:
    waiting = desk.page.locator("[data-tile='Waiting'] [data-figure]")
    await desk.open("Rate")
    await expect(desk.page.locator("[data-preview]")).to_be_visible()
    assert "Set: 0/s" in await desk.press("set-rate", "Set the rate", asks=False, reason="slowly", rate_per_s=0)
    await desk.close()
    await desk.given(two_join)
    await desk.open("Message")
    assert "reads it now" in await desk.press(
        "set-message", "Show to the line", asks=False, message="Ten minutes", reason="late"
    )
    await expect(desk.page.locator("[data-message-now]")).to_have_text("Ten minutes")
    assert "gone" in await desk.press("clear-message", "Clear the message")
    await desk.undo("clear-message", "Back to the message before")
    assert (await desk.room())["message"] == "Ten minutes"
    await desk.close()
    await desk.hears(expect(waiting).to_have_text("2", timeout=LATE_MS))
    await desk.open("Pause…")
    assert "Called 2 of 5." in await desk.press("admit", "Admit fans now", count=5, reason="the press")
    await desk.close()
    await desk.hears(expect(waiting).to_have_text("0", timeout=LATE_MS))
    assert await desk.log() >= {("admit", "operator", "the press"), ("change", "operator", "slowly")}


@script("change_room", event=lambda: {"room": {"lanes": LANES, "sale_starts_at": "2026-01-01T10:00:30Z"}})
async def lanes_pace_times_limits_and_entry_are_changed_and_taken_back(desk: Desk) -> None:
    await desk.open("More", "Lanes, pace, times")
    before = await desk.room()
    lanes = desk.action("lanes")
    await lanes.get_by_role("button", name="Share of the lanes…").click()
    await expect(lanes.get_by_role("button", name="Save", exact=True)).to_be_disabled()
    assert "Saved" in await desk.press(
        "lanes", "Share of the lanes", verb="Save", asks=False, weight_1=3, reason="members"
    )
    room = await desk.room()
    assert [lane["weight"] for lane in room["lanes"].values()] == [1, 3]
    assert room["lanes"]["1"]["code_required"], "what is not shown stays"
    await desk.undo("lanes", "Undo")
    assert [lane["weight"] for lane in (await desk.room())["lanes"].values()] == [1, 1]
    assert "Saved" in await desk.press("schedule", "Times of the sale", verb="Save", sale_ends_at="2031-05-01T20:00")
    assert "Saved" in await desk.press(
        "limits",
        "Time and places for each fan",
        verb="Save",
        session_s=300,
        claim_window_s=60,
        max_line=5000,
        stock_coupling=False,
    )
    assert "Saved" in await desk.press(
        "entry", "Who may join, and how", verb="Save", signed_in_only=True, proof_of_work="on", rollout_percent=50
    )
    await desk.action("pace").get_by_role("button", name="Automatic pace…").click()
    await desk.action("pace").locator("[name=autotune]").select_option("on")
    await expect(desk.action("pace").locator("[data-wrong]")).to_contain_text("needs a number")
    assert "Saved" in await desk.press(
        "pace", "Automatic pace", verb="Save", asks=False, rate_min=5, rate_max=80, guard="observe"
    )
    room = await desk.room()
    assert (room["pace"]["autotune"], room["pace"]["guard"], room["pace"]["rate_max"]) == ("on", "observe", 80)
    assert room["pace"]["slow_ms"] == before["pace"]["slow_ms"]
    assert (room["session_s"], room["claim_window_s"], room["max_line"]) == (300, 60, 5000)
    assert room["sale_ends_at"].startswith("2031-05-01T")
    assert room["sale_starts_at"] == before["sale_starts_at"], "a time that nobody touched keeps its seconds"
    assert (room["entry"]["signed_in_only"], room["friction"]["proof_of_work"]) == (True, "on")
    assert (room["rollout_percent"], room["stock_coupling"]) == (50, False)
    assert ("change", "operator", "members") in await desk.log()


@script("create_access_codes", "revoke_access_codes", event=lambda: {"room": {"lanes": LANES}})
async def access_codes_are_made_and_revoked(desk: Desk) -> None:
    await desk.open("More", "Access codes")
    assert "2 made." in await desk.press("new-codes", "New access codes", count=2, reason="members")
    shown = (await desk.page.locator("[data-once] textarea").input_value()).split("\n")
    assert "1 code is revoked." in await desk.press("revoke", "Revoke codes", codes=shown[0], reason="leaked")
    rows = desk.page.locator("dialog [data-code]")
    left = await rows.filter(has_not_text="revoked").get_attribute("data-code")
    await rows.filter(has_not_text="revoked").get_by_role("button", name="Revoke…").click()
    revoke = desk.action(f"revoke-{left}")
    await expect(revoke.get_by_role("button", name="Revoke", exact=True)).to_be_disabled()
    await revoke.locator("[name=reason]").fill("leaked, too")
    await revoke.get_by_role("button", name="Revoke", exact=True).click()
    await expect(revoke).to_contain_text("1 code is revoked.")
    await expect(rows.filter(has_text="revoked")).to_have_count(2)
    assert {code["revoked_at"] is None for code in (await desk.get(f"{codes_of(desk)}"))["codes"]} == {False}


def codes_of(desk: Desk) -> str:
    return f"/admin/queue/events/{desk.event_id}/codes"


def drawn_in_ten_seconds() -> dict[str, Any]:
    closes, known = (rfc3339(now_ms() + after_ms) for after_ms in (KNOWN_AFTER_MS - 2_000, KNOWN_AFTER_MS))
    rules = {"entry_closes_at": closes, "public_value": {"what": "an index", "known_at": known}}
    return {"room": {"ordering": "lottery", "lottery": rules, "sale_starts_at": known}}


async def three_enter(desk: Any) -> None:
    for _ in range(3):
        await fan_of(desk.browser, desk.event_id).join()


async def its_time_comes(desk: Any) -> None:
    async def may_be_drawn() -> bool:
        lottery = (await desk.operator.get(f"/events/{desk.event_id}/queue/lottery")).json()
        starts: str = (await desk.read(f"/admin/events/{desk.event_id}/room"))["sale_starts_at"]
        return bool(lottery["closed_at"]) and starts < rfc3339(now_ms())

    await wait_until(may_be_drawn, timeout_s=60, interval_s=0.3)


async def everybody_is_told(desk: Any) -> None:
    async def drawn() -> bool:
        return bool((await desk.operator.get(f"/events/{desk.event_id}/queue/lottery")).json()["drawn_at"])

    await wait_until(drawn)


@script("draw_lottery", event=drawn_in_ten_seconds)
async def the_lottery_is_drawn_once_and_not_before_its_time(desk: Desk) -> None:
    await desk.given(three_enter)
    await desk.open("More", "Lottery")
    early = await desk.press("draw", "Draw", asks=False, public_value="24,331", reason="now", typed=desk.event_id)
    assert re.search(r"\w+ \w+ \w+", early)
    await expect(desk.action("draw").locator("[data-problem='409']")).to_be_visible()
    await desk.given(its_time_comes)
    await desk.action("draw").get_by_role("button", name="Draw", exact=True).click()
    await expect(desk.action("draw").locator("[data-done]")).to_contain_text("Drawn")
    await desk.given(everybody_is_told)
    await desk.close()
    await desk.open("More", "Lottery")
    await expect(desk.page.locator("dialog dt", has_text="Drawn")).to_be_visible()
    await expect(desk.page.locator("dialog q")).to_have_text("24,331")
    await expect(desk.action("draw").get_by_role("button", name="Draw", exact=True)).to_have_count(0)
    assert "now" in {reason for _, _, reason in await desk.log()}
