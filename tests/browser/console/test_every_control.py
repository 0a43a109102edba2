"""Every write of the admin API has a control that an operator can press: it does what it says, says what came of it,
acts once for a double click, and stands in the audit log with who did it and why.

Each test names the endpoints whose controls it presses, and fails if the pages did not call one of them.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest
from playwright.async_api import Locator, Page, Request, expect

from onsale.local.engines import with_driver
from shared.contracts.admin import inventory, order_reports, orders, prices, queue
from shared.contracts.admin.endpoint import Endpoint
from shared.runtime.clock import now_ms, rfc3339
from tests.browser.console.conftest import Open
from tests.support.providers.receiver import webhook_receiver
from tests.support.running.suite import Fan, RunningSuite
from tests.support.wait import wait_until

pytestmark = pytest.mark.browser
Test = TypeVar("Test", bound=Callable[..., Any])
Row = tuple[str, str]
NO_CONTROL: dict[Row, str] = {
    (endpoint.method, endpoint.path): "an event is made from its file, which the organiser keeps: `onsale events apply`"
    for endpoint in (queue.APPLY_EVENT, inventory.APPLY_EVENT, prices.APPLY_EVENT)
}
PRESSED: set[Row] = set()
FLOOR = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000, "fee_minor": 0}]
BLOCK = {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 10, "price_minor": 5000}
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "code_required": True}]
LATE_MS = 20_000


def writes() -> set[Row]:
    """Every endpoint of the admin APIs that changes something."""
    tables = (queue, inventory, orders, prices, order_reports)
    rows = [each for table in tables for each in vars(table).values() if isinstance(each, Endpoint)]
    return {(row.method, row.path) for row in rows if row.method != "GET"}


def presses(*endpoints: Endpoint[Any]) -> Callable[[Test], Test]:
    """Marks a test that presses the controls of these endpoints."""

    def mark(test: Test) -> Test:
        rows = {(endpoint.method, endpoint.path) for endpoint in endpoints}
        PRESSED.update(rows)
        return pytest.mark.presses.with_args(rows)(test)

    return mark


def row_of(request: Request) -> Row | None:
    """The endpoint that a request calls, the one with the fewest parameters if several match."""
    path = re.sub(r"^https?://[^/]+|[?].*$", "", request.url)
    found = [
        row for row in writes()
        if row[0] == request.method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", row[1]), path)
    ]  # fmt: skip
    return min(found, key=lambda row: row[1].count("{"), default=None)


def test_every_write_of_the_admin_api_has_a_control_or_a_reason_why_not() -> None:
    assert PRESSED | NO_CONTROL.keys() == writes()
    assert not PRESSED & NO_CONTROL.keys()


class Desk:
    """An operator at the console of one event."""

    def __init__(self, page: Page, suite: RunningSuite, event_id: str) -> None:
        self.page, self.suite, self.event_id = page, suite, event_id

    async def open(self, *buttons: str) -> None:
        controls = self.page.get_by_role("navigation", name="Controls")
        for button in buttons:
            await controls.get_by_role("button", name=button).click()

    async def close(self) -> None:
        await self.page.keyboard.press("Escape")
        await expect(self.page.locator("dialog.drawer")).to_be_hidden()

    def action(self, name: str) -> Locator:
        return self.page.locator(f"dialog [data-action='{name}']")

    async def press(
        self, name: str, label: str, /, *, asks: bool = True, verb: str = "", reason: str | None = None, **fields: Any
    ) -> str:
        """Opens the form of a control, fills it in, presses it twice at once, and returns what the console says."""
        form = self.action(name)
        if asks:
            await form.get_by_role("button", name=f"{label}…", exact=True).click()
        for field, value in fields.items():
            found = form.locator(f"[name={field}]")
            if isinstance(value, bool):
                await found.set_checked(value)
            elif await found.evaluate("each => each.tagName") == "SELECT":
                await found.select_option(value)
            else:
                await found.fill(str(value))
        if reason is not None:
            await form.locator("[name=reason]").fill(reason)
        sent: list[str] = []
        self.page.on("request", lambda one: sent.append(one.url) if row_of(one) else None)
        await form.get_by_role("button", name=verb or label, exact=True).dblclick()
        done = form.locator("[data-done], [data-problem], [data-conflict]")
        await expect(done).to_be_visible(timeout=LATE_MS)
        await self.page.wait_for_timeout(50)
        assert len(sent) == 1, f"a double click of {label} sent {sent}"
        return await done.inner_text()

    async def undo(self, name: str, label: str) -> None:
        await self.action(name).get_by_role("button", name=label, exact=True).click()
        await expect(self.action(name).locator("[data-done]")).to_have_text("Taken back.")

    async def get(self, path: str) -> Any:
        async with self.suite.operator() as operator:
            answer = await operator.get(path)
            assert answer.is_success, answer.text
            return answer.json()

    async def room(self) -> dict[str, Any]:
        return dict(await self.get(f"/admin/events/{self.event_id}/room"))

    async def stock(self) -> dict[str, Any]:
        return dict(await self.get(f"/admin/inventory/events/{self.event_id}/stock"))

    async def log(self) -> set[tuple[str, str, str | None]]:
        """What was done, by whom and why, of this event and of orders and webhooks."""
        paths = [
            f"/admin/queue/events/{self.event_id}/changes", f"/admin/inventory/events/{self.event_id}/changes",
            f"/admin/orders/events/{self.event_id}/price-changes", "/admin/orders/changes",
        ]  # fmt: skip
        entries = [entry for path in paths for entry in (await self.get(path))["changes"]]
        return {(entry["action"], entry["actor"], entry["reason"]) for entry in entries}

    async def fan(self, browser: Any) -> Fan:
        return await Fan(browser, self.event_id).come_in()


Sit = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def sit(suite: RunningSuite, open_page: Open, request: pytest.FixtureRequest) -> AsyncIterator[Sit]:
    """Seats an operator at a new event, or at one that is there; what the test presses must have been called."""
    called: set[Row] = set()

    def record(one: Request) -> None:
        if row := row_of(one):
            called.add(row)

    async def sit(event_id: str | None = None, **event: Any) -> Desk:
        event_id = event_id or await suite.open_event(**{"sections": FLOOR, **event})
        page = await open_page(suite, f"events/{event_id}")
        page.on("request", record)
        return Desk(page, suite, event_id)

    yield sit
    marker = request.node.get_closest_marker("presses")
    assert marker.args[0] <= called


@presses(queue.SET_ROOM_STATE, queue.REBUILD_ROOM, queue.RESET_ROOM)
async def test_the_room_is_opened_paused_drained_rebuilt_closed_and_reset(sit: Sit) -> None:
    desk = await sit(open=False)
    await expect(desk.page.locator("[data-state=draft]")).to_be_visible()
    await desk.open("Open…")
    assert "Opened." in await desk.press("state", "Open", asks=False, reason="doors")
    await expect(desk.page.locator(".bar [data-state=open]")).to_be_attached(timeout=LATE_MS)
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
    await expect(desk.page.locator(".bar [data-state=closed]")).to_be_attached(timeout=LATE_MS)
    assert await desk.log() >= {
        ("pause", "operator", "the card terminal is down"), ("resume", "operator", "it works again"),
        ("drain", "operator", "enough"), ("rebuild", "operator", "a new Redis"),
        ("reset", "operator", "a dress rehearsal"), ("close", "operator", "over"),
    }  # fmt: skip


@presses(queue.CHANGE_ROOM, queue.PLAN_CAPACITY, queue.SET_MESSAGE, queue.ADMIT)
async def test_the_line_is_tuned_told_something_and_called_by_hand(sit: Sit) -> None:
    desk = await sit(room={"rate_per_s": 50, "burst": 1})
    await desk.open("Rate")
    await expect(desk.page.locator("[data-preview]")).to_be_visible()
    assert "Set: 0/s" in await desk.press("set-rate", "Set the rate", asks=False, reason="slowly", rate_per_s=0)
    await desk.close()
    async with desk.suite.browser() as browser:
        for _ in range(2):
            await Fan(browser, desk.event_id).join()
    await desk.open("Message")
    assert "reads it now" in await desk.press(
        "set-message", "Show to the line", asks=False, message="Ten minutes", reason="late"
    )
    await expect(desk.page.locator("[data-message-now]")).to_have_text("Ten minutes")
    assert "gone" in await desk.press("clear-message", "Clear the message")
    await desk.undo("clear-message", "Back to the message before")
    assert (await desk.room())["message"] == "Ten minutes"
    await desk.close()
    await expect(desk.page.locator("[data-tile='Waiting'] [data-figure]")).to_have_text("2", timeout=LATE_MS)
    await desk.open("Pause…")
    assert "Called 2 of 5." in await desk.press("admit", "Admit fans now", count=5, reason="the press")
    await desk.close()
    await expect(desk.page.locator("[data-tile='Waiting'] [data-figure]")).to_have_text("0", timeout=LATE_MS)
    assert await desk.log() >= {("admit", "operator", "the press"), ("change", "operator", "slowly")}


@presses(queue.CHANGE_ROOM)
async def test_lanes_pace_times_limits_and_entry_are_changed_and_taken_back(sit: Sit) -> None:
    desk = await sit(room={"lanes": LANES, "sale_starts_at": "2026-01-01T10:00:30Z"})
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


@presses(queue.CREATE_ACCESS_CODES, queue.REVOKE_ACCESS_CODES)
async def test_access_codes_are_made_and_revoked(sit: Sit) -> None:
    desk = await sit(room={"lanes": LANES})
    await desk.open("More", "Access codes")
    assert "2 made." in await desk.press("new-codes", "New access codes", count=2, reason="members")
    shown = (await desk.page.locator("[data-once] textarea").input_value()).split("\n")
    assert "1 code is revoked." in await desk.press("revoke", "Revoke codes", codes=shown[0], reason="leaked")
    rows = desk.page.locator("dialog [data-code]")
    left = await rows.filter(has_not_text="revoked").get_attribute("data-code")
    await rows.filter(has_not_text="revoked").get_by_role("button", name="Revoke…").click()
    await desk.action(f"revoke-{left}").get_by_role("button", name="Revoke", exact=True).click()
    await expect(desk.action(f"revoke-{left}")).to_contain_text("1 code is revoked.")
    await expect(rows.filter(has_text="revoked")).to_have_count(2)
    assert {code["revoked_at"] is None for code in (await desk.get(f"{codes_of(desk)}"))["codes"]} == {False}


def codes_of(desk: Desk) -> str:
    return f"/admin/queue/events/{desk.event_id}/codes"


@presses(queue.DRAW_LOTTERY)
async def test_the_lottery_is_drawn_once_and_not_before_its_time(sit: Sit) -> None:
    closes, known = (rfc3339(now_ms() + after_ms) for after_ms in (4_000, 6_000))
    rules = {"entry_closes_at": closes, "public_value": {"what": "an index", "known_at": known}}
    desk = await sit(room={"ordering": "lottery", "lottery": rules, "sale_starts_at": known})
    async with desk.suite.browser() as browser:
        for _ in range(3):
            await Fan(browser, desk.event_id).join()
    await desk.open("More", "Lottery")
    early = await desk.press("draw", "Draw", asks=False, public_value="24,331", reason="now", typed=desk.event_id)
    assert re.search(r"\w+ \w+ \w+", early)
    await expect(desk.action("draw").locator("[data-problem='409']")).to_be_visible()

    async def drawn() -> bool:
        await desk.page.wait_for_timeout(800)
        await desk.action("draw").get_by_role("button", name="Draw", exact=True).click()
        await desk.page.wait_for_timeout(300)
        return bool(await desk.page.locator("dialog dt", has_text="Drawn").count())

    await wait_until(drawn, timeout_s=20)
    await expect(desk.page.locator("dialog q")).to_have_text("24,331")
    await expect(desk.action("draw").locator("[data-done]")).to_contain_text("Drawn")
    await expect(desk.action("draw").get_by_role("button", name="Draw", exact=True)).to_have_count(0)
    assert "now" in {reason for _, _, reason in await desk.log()}


@presses(
    inventory.BLOCK_PLACES, inventory.UNBLOCK_PLACES, inventory.RESIZE_SECTION, inventory.PUT_ALLOTMENT,
    inventory.OPEN_ALLOTMENT, inventory.RELEASE_HOLD, inventory.RELEASE_ALL_HOLDS,
)  # fmt: skip
async def test_places_are_closed_opened_resized_kept_aside_and_released(sit: Sit) -> None:
    desk = await sit(sections=[*FLOOR, BLOCK])
    async with desk.suite.browser() as browser:
        one = await (await desk.fan(browser)).hold(ga=[{"section_id": "GA", "quantity": 3}])
        await (await desk.fan(browser)).hold(seats=["A-1-1"])
    await desk.open("Stock")
    assert "10 places blocked." in await desk.press(
        "block",
        "Block or unblock places",
        verb="Block",
        which="rows",
        section="A",
        first_row=2,
        last_row=2,
        reason="cameras",
    )
    row = desk.page.locator("tr[data-stock=A] td.num")
    await expect(row).to_have_text(["9", "1", "0", "10", "0", "20"])
    assert "10 places unblocked." in await desk.press(
        "block",
        "Block or unblock places",
        verb="Unblock",
        unblock=True,
        which="rows",
        section="A",
        first_row=2,
        last_row=2,
    )
    await expect(row).to_have_text(["19", "1", "0", "0", "0", "20"])
    refused = await desk.press("resize", "Resize a standing section", section="GA", capacity=1, reason="a stage")
    assert re.search(r"\w+ \w+ \w+", refused)
    await expect(desk.action("resize").locator("[data-problem]")).to_be_visible()
    assert "GA has 30 places." in await desk.press("resize", "Resize a standing section", asks=False, capacity=30)
    await desk.undo("resize", "Back to 40")
    assert "5 places are kept aside." in await desk.press(
        "new-allotment",
        "Keep places aside",
        name="Guests of the band",
        kind="house",
        which="ga",
        section="GA",
        quantity=5,
    )
    await expect(desk.page.locator("tr[data-stock=GA] td.num")).to_have_text(["32", "3", "0", "0", "5", "40"])
    assert "5 places are on sale." in await desk.press("open-guests-of-the-band", "Open", reason="nobody came")
    unknown = await desk.press("release-one", "Release one hold", reason="a fan asked", reservation="f" * 32)
    assert re.search(r"\w+ \w+", unknown)
    await expect(desk.action("release-one").locator("[data-problem='404']")).to_be_visible()
    assert "The reservation is cancelled." in await desk.press(
        "release-one", "Release one hold", asks=False, reason="a fan asked", reservation=one["reservation_id"]
    )
    assert "Released 1 hold." in await desk.press(
        "release-all", "Release all holds", reason="wrong prices", typed=desk.event_id
    )
    left = {each["section_id"]: (each["available"], each["held"]) for each in (await desk.stock())["sections"]}
    assert left == {"A": (20, 0), "GA": (40, 0)}
    assert await desk.log() >= {("block", "operator", "cameras"), ("open", "operator", "nobody came")}


@presses(inventory.RECONCILE, inventory.APPROVE_OVERSELL)
async def test_an_oversell_is_found_and_waits_until_it_is_approved(sit: Sit) -> None:
    desk = await sit(sales={"oversell": {"policy": "cancel_latest", "review_percent": 0}})
    async with desk.suite.browser() as browser:
        for _ in range(2):
            fan = await desk.fan(browser)
            await fan.buy(await fan.hold(ga=[{"section_id": "GA", "quantity": 2}]))
    await execute(
        desk, "UPDATE inventory.section SET capacity = 3, seats_remaining = 0 WHERE event_id = $1", desk.event_id
    )
    await desk.open("More", "Differences, oversells")
    await desk.press("reconcile", "Reconcile now", asks=False)

    async def waits() -> bool:
        await desk.page.wait_for_timeout(700)
        await desk.action("reconcile").get_by_role("button", name="Reconcile now").click()
        return await desk.action("approve").get_by_role("button", name="Approve all that wait…").is_visible()

    await wait_until(waits, timeout_s=30)
    done = await desk.press("approve", "Approve all that wait", reason="the fire brigade", typed=desk.event_id)
    assert "1 reservation loses its tickets" in done
    await expect(desk.page.locator("dialog.drawer")).to_contain_text("Decided by operator: the fire brigade")


async def execute(desk: Desk, statement: str, *values: Any) -> None:
    """What no operator does: a fault in the database."""
    database = await asyncpg.connect(with_driver(desk.suite.engines["postgres_url"]))
    try:
        assert await database.execute(statement, *values) == "UPDATE 1"
    finally:
        await database.close()


async def pending_order(desk: Desk, browser: Any) -> str:
    """An order whose buyer is on the provider's page."""
    fan = await desk.fan(browser)
    held = await fan.hold(ga=[{"section_id": "GA", "quantity": 1}])
    payment = {"provider": "sandbox", "method": "redirect", "return_url": f"{desk.suite.url}/o/back"}
    answer = await fan.order(held, payment=payment)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["reference"])


async def find(desk: Desk, reference: str) -> None:
    await desk.open("Orders")
    await desk.page.locator("dialog [name=search]").fill(reference)
    found = desk.page.locator(f"[data-order='{reference}'] button")
    await expect(found).to_be_visible()
    wide = "document.querySelector('dialog.drawer').scrollWidth > document.querySelector('dialog.drawer').clientWidth"
    assert not await desk.page.evaluate(wide), "a long address pushes nothing out of the drawer"
    await found.click()


@presses(orders.CANCEL_ORDER, orders.RETRY_ORDER, orders.RESOLVE_ORDER)
async def test_orders_are_retried_cancelled_and_resolved(sit: Sit) -> None:
    desk = await sit()
    async with desk.suite.browser() as browser:
        first, second = await pending_order(desk, browser), await pending_order(desk, browser)
    await find(desk, first)
    assert "tried again" in await desk.press("retry", "Retry now", reason="the fan calls")
    assert "Cancelled" in await desk.press("cancel", "Cancel the order", reason="a mistake")
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Cancelled", timeout=LATE_MS)
    await expect(desk.page.locator("dialog ol.rows")).to_contain_text("a mistake")
    await desk.close()
    await execute(
        desk, "UPDATE orders.\"order\" SET status = 'review', end_reason = 'unknown', due_at = NULL,"
        " wake_count = wake_count + 1 WHERE reference = $1", second,
    )  # fmt: skip
    await desk.page.get_by_role("button", name="Review…").click()
    await desk.page.locator(f"[data-order='{second}'] button").click()
    decided = await desk.press("resolve", "Resolve", decision="expire", reason="the bank has no such payment")
    assert "Decided." in decided
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Expired", timeout=LATE_MS)
    await expect(desk.page.locator("dialog ol.rows")).to_contain_text("the bank has no such payment")


@presses(
    orders.REFUND_ORDER, orders.START_EVENT_REFUND, orders.PAUSE_EVENT_REFUND, orders.RESUME_EVENT_REFUND,
)  # fmt: skip
async def test_tickets_are_refunded_and_then_the_event_with_a_pause(sit: Sit) -> None:
    desk = await sit()
    async with desk.suite.browser() as browser:
        fans = [await desk.fan(browser) for _ in range(4)]
        bought = [await fan.buy(await fan.hold(ga=[{"section_id": "GA", "quantity": 2}])) for fan in fans]
    await find(desk, bought[-1]["reference"])
    await desk.action("refund").get_by_role("button", name="Refund…").click()
    await desk.action("refund").locator("[name=what]").select_option("tickets")
    await desk.action("refund").locator("fieldset.group input[type=number]").fill("1")
    refunded = await desk.press("refund", "Refund", asks=False, return_to_sale=True, reason="one fell ill")
    assert "€30.00" in refunded
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Partially refunded", timeout=LATE_MS)
    await desk.page.get_by_role("button", name="‹ All orders").click()
    started = await desk.press(
        "refund-all", "Refund the whole event", rate_per_s=1, reason="called off", typed=desk.event_id
    )
    assert "Begun" in started
    assert "Paused" in await desk.press("pause-refund", "Pause the refund", reason="the bank asks")
    await expect(desk.page.locator("[data-event-refund]")).to_have_attribute("data-event-refund", "paused")
    await expect(desk.page.locator("[data-event-refund]")).to_contain_text("called off")
    assert "Resumed" in await desk.press("resume-refund", "Resume the refund", rate_per_s=50, reason="the bank agrees")
    await expect(desk.page.locator("[data-event-refund=done]")).to_be_visible(timeout=LATE_MS)
    await desk.close()
    await expect(desk.page.locator("[data-change]").first).to_contain_text("the bank agrees", timeout=LATE_MS)


@presses(prices.PUT_PROMO_CODE, prices.DEACTIVATE_PROMO_CODE)
async def test_a_promo_code_is_made_and_stopped(sit: Sit) -> None:
    desk = await sit()
    await desk.open("More", "Promo codes")
    made = await desk.press(
        "new-promo", "New promo code", code="EARLY", off="12.5", uses_max=100, customer_uses_max=1,
        until="2030-01-01T10:00", reason="radio",
    )  # fmt: skip
    assert "EARLY is valid." in made
    code = await desk.get(f"/admin/orders/events/{desk.event_id}/promo-codes/EARLY")
    assert (code["percent"], code["uses_max"], code["customer_uses_max"]) == ("12.5", 100, 1)
    await expect(desk.page.locator("[data-promo=EARLY]")).to_contain_text("12.5 % off")
    assert "Stopped." in await desk.press("stop-EARLY", "Stop", reason="leaked")
    await expect(desk.page.locator("[data-promo=EARLY]")).to_contain_text("stopped")
    assert "leaked" in {reason for _, _, reason in await desk.log()}


@presses(
    orders.CREATE_WEBHOOK_ENDPOINT, orders.RESEND_WEBHOOK, orders.ENABLE_WEBHOOK_ENDPOINT,
    orders.DELETE_WEBHOOK_ENDPOINT,
)  # fmt: skip
async def test_a_webhook_is_made_sent_again_enabled_and_deleted(sit: Sit) -> None:
    desk = await sit()
    await desk.open("More", "Webhooks")
    async with webhook_receiver() as receiver, desk.suite.browser() as browser:
        receiver.faults = ["gone"]
        assert "Made." in await desk.press("new-webhook", "New webhook", url=receiver.url, reason="the accounts")
        secret = await desk.page.locator("[data-once] textarea").input_value()
        [endpoint] = [
            one["endpoint_id"] for one in (await desk.get("/admin/orders/webhooks"))["endpoints"]
            if one["event_id"] == desk.event_id
        ]  # fmt: skip
        fan = await desk.fan(browser)
        await fan.buy(await fan.hold(ga=[{"section_id": "GA", "quantity": 1}]))
        await wait_until(lambda: receiver.received, timeout_s=20)
        row = desk.page.locator(f"[data-webhook='{endpoint}']")

        async def is_off() -> bool:
            await desk.close()
            await desk.open("More", "Webhooks")
            await expect(row).to_be_visible()
            return "Off since" in await row.inner_text()

        await wait_until(is_off, timeout_s=20, interval_s=0.3)
        enabled = desk.action(f"enable-{endpoint}")
        await enabled.get_by_role("button", name="Enable…").click()
        await enabled.locator("[name=reason]").fill("it is there again")
        await enabled.get_by_role("button", name="Enable", exact=True).click()
        await expect(enabled).to_contain_text("Messages are sent again.")
        await expect(row).not_to_contain_text("Off since")
        await row.get_by_role("button", name="Deliveries").click()
        delivery = row.locator("section li").first
        name = await delivery.locator("[data-action]").get_attribute("data-action")
        before = len(receiver.received)
        assert "sent again" in await desk.press(name or "", "Send again", reason="they lost it")
        await wait_until(lambda: len(receiver.received) > before, timeout_s=20)
        assert receiver.received[-1].verified(secret)
        await desk.action(f"delete-{endpoint}").get_by_role("button", name="Delete…").click()
        await desk.action(f"delete-{endpoint}").locator("[name=reason]").fill("another address")
        await desk.action(f"delete-{endpoint}").get_by_role("button", name="Delete", exact=True).click()
        await expect(row).to_have_count(0)
        await expect(desk.page.locator("[data-deleted]")).to_contain_text(receiver.url)
    assert "another address" in {reason for _, _, reason in await desk.log()}


@presses(orders.SET_BACKGROUND_SHARE, orders.REPLAY_COMMAND)
async def test_the_background_share_is_set_and_a_failed_command_runs_again(sit: Sit) -> None:
    desk = await sit()
    async with desk.suite.browser() as browser:
        fan = await desk.fan(browser)
        await fan.order(await fan.hold(ga=[{"section_id": "GA", "quantity": 1}]), method="decline")

        async def failed() -> bool:
            path = f"/admin/orders/commands?event_id={desk.event_id}&status=failed"
            return bool((await desk.get(path))["commands"])

        await wait_until(failed, timeout_s=20, interval_s=0.2)
    await desk.open("More", "Checkouts, failed steps")
    share = f"/admin/orders/events/{desk.event_id}/background-share"
    before = (await desk.get(share))["background_percent"]
    wanted = 30 if before != 30 else 40
    assert f"{wanted} % of the checkouts" in await desk.press(
        "background-share", "Set the share", asks=False, background_percent=wanted, reason="a slow bank"
    )
    assert (await desk.get(share))["background_percent"] == wanted
    assert ("background", "operator", "a slow bank") in await desk.log()
    await desk.undo("background-share", f"Back to {before:g} %")
    row = desk.page.locator("dialog [data-command]").first
    await expect(row).to_contain_text("Checkout")
    name = await row.locator("[data-action]").get_attribute("data-action")
    await row.get_by_role("button", name="Run again…").click()
    async with desk.page.expect_response(lambda one: one.url.endswith("/rerun") and one.status == 202):
        await desk.action(name or "").locator("[name=reason]").fill("the fan calls")
        await desk.action(name or "").get_by_role("button", name="Run again", exact=True).dblclick()


async def test_the_report_is_saved_and_read_without_a_shell(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=FLOOR)
    async with suite.browser() as browser:
        fan = await Fan(browser, event_id).come_in()
        await fan.buy(await fan.hold(ga=[{"section_id": "GA", "quantity": 2}]))
    page = await open_page(suite, f"events/{event_id}")
    desk = Desk(page, suite, event_id)
    await desk.open("More", "Report and tables")
    async with page.expect_download() as saved:
        await page.get_by_role("link", name="Save the report").click()
    file = await saved.value
    assert file.suggested_filename == f"{event_id}-report.html"
    text = (await file.path()).read_text()
    assert "A test: report of the sale" in text
    assert "could not be checked" not in text
    assert "@example.org" not in text, "it names no fan"
    async with page.expect_download() as saved:
        await page.get_by_role("link", name="Orders", exact=True).click()
    assert "@example.org" in (await (await saved.value).path()).read_text()
    answer = await page.context.request.get(f"{suite.url}/console/api/events/{event_id}/report")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    assert "sandbox" in answer.headers["content-security-policy"]
    unknown = await page.context.request.get(f"{suite.url}/console/api/events/none-such/report")
    assert unknown.status == 404
    async with suite.browser() as stranger:
        assert (await stranger.get(f"/console/api/events/{event_id}/report")).status_code == 401
