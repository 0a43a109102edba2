"""The controls of the stock: places, allotments and holds, and what is sold too often."""

import re
from typing import Any

from playwright.async_api import expect

from tests.browser.console.desk import FLOOR, Desk, script
from tests.support.wait import wait_until

TRAITS = {"wheelchair": ["2-1"], "companion": ["2-2"], "restricted_view": ["1-9..10"]}
BLOCK = {
    "section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 10, "price_minor": 5000,
    "traits": TRAITS,
}  # fmt: skip


async def two_hold(desk: Any) -> str:
    """The reservation of the first one."""
    held = await (await desk.fan()).hold({"ga": [{"section_id": "GA", "quantity": 3}]})
    await (await desk.fan()).hold({"seats": ["A-1-1"]})
    return str(held["reservation_id"])


@script(
    "block_places", "unblock_places", "resize_section", "put_allotment", "move_stock",
    "open_allotment", "release_hold", "release_all_holds", "release_accessible",
    event=lambda: {"sections": [*FLOOR, BLOCK]},
)  # fmt: skip
async def places_are_closed_opened_resized_kept_aside_and_released(desk: Desk) -> None:
    reservation = await desk.given(two_hold)
    await desk.open("Stock")
    blocking = ("block", "Block or unblock places")
    second_row: dict[str, Any] = {"which": "rows", "section": "A", "first_row": 2, "last_row": 2}
    assert "10 places blocked." in await desk.press(*blocking, verb="Block", reason="cameras", **second_row)
    row = desk.page.locator("tr[data-stock=A] td.num")
    await expect(row).to_have_text(["9", "0", "1", "0", "10", "0", "20"])
    assert "10 places unblocked." in await desk.press(*blocking, verb="Unblock", unblock=True, **second_row)
    await expect(row).to_have_text(["19", "0", "1", "0", "0", "0", "20"])
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
    floor = desk.page.locator("tr[data-stock=GA] td.num")
    await expect(floor).to_have_text(["32", "0", "3", "0", "0", "5", "40"])
    assert "4 places are kept aside." in await desk.press(
        "new-allotment", "Keep places aside", name="Our partner", kind="presale", codes="PARTNER 24", lanes="2",
        which="ga", section="GA", quantity=4,
    )  # fmt: skip
    await expect(floor).to_have_text(["28", "4", "3", "0", "0", "5", "40"])
    moving: dict[str, Any] = {"which": "ga", "section": "GA", "quantity": 2}
    assert "The places are moved." in await desk.press(
        "move", "Move places", source="guests-of-the-band", target="our-partner", reason="they need fewer", **moving
    )
    await expect(floor).to_have_text(["28", "6", "3", "0", "0", "3", "40"])
    await desk.undo("move", "Move back")
    await expect(floor).to_have_text(["28", "4", "3", "0", "0", "5", "40"])
    await expect(desk.page.locator("dialog.drawer")).to_contain_text("4 left, 0 held, 0 sold by code")
    assert "5 places are on sale." in await desk.press("open-guests-of-the-band", "Open", reason="nobody came")
    assert "4 places are on sale." in await desk.press("open-our-partner", "Open", reason="the presale is over")
    view = desk.page.locator("tr[data-trait='A restricted_view'] td.num")
    await expect(view).to_have_text(["2", "0", "0", "2"])
    everybody = "Offer wheelchair and companion places to everybody"
    done = await desk.press("release-accessible", everybody, verb="Release", reason="the last day")
    assert "They are offered to everybody." in done
    unknown = await desk.press("release-one", "Release one hold", reason="a fan asked", reservation="f" * 32)
    assert re.search(r"\w+ \w+", unknown)
    await expect(desk.action("release-one").locator("[data-problem='404']")).to_be_visible()
    assert "The reservation is cancelled." in await desk.press(
        "release-one", "Release one hold", asks=False, reason="a fan asked", reservation=reservation
    )
    assert "Released 1 hold." in await desk.press(
        "release-all", "Release all holds", reason="wrong prices", typed=desk.event_id
    )
    left = {each["section_id"]: (each["available"], each["held"]) for each in (await desk.stock())["sections"]}
    assert left == {"A": (20, 0), "GA": (40, 0)}
    assert await desk.log() >= {
        ("block", "operator", "cameras"), ("open", "operator", "nobody came"),
        ("release-accessible", "operator", "the last day"),
    }  # fmt: skip


async def two_buy_what_one_place_is_taken_from(desk: Any) -> None:
    for _ in range(2):
        fan = await desk.fan()
        await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]}))
    await desk.execute(
        "UPDATE inventory.section SET capacity = 3, seats_remaining = 0 WHERE event_id = $1", desk.event_id
    )


async def it_is_seen_for_long_enough(desk: Any) -> None:
    async def waits() -> bool:
        path = f"/admin/inventory/events/{desk.event_id}/reconcile"
        assert (await desk.operator.post(path)).is_success
        return any(one["status"] == "waiting" for one in (await desk.read(path))["oversell"])

    await wait_until(waits, timeout_s=30, interval_s=0.7)


@script(
    "reconcile", "approve_oversell",
    event=lambda: {"sales": {"oversell": {"policy": "cancel_latest", "review_percent": 0}}},
)  # fmt: skip
async def an_oversell_is_found_and_waits_until_it_is_approved(desk: Desk) -> None:
    await desk.given(two_buy_what_one_place_is_taken_from)
    await desk.open("More", "Differences, oversells")
    await desk.press("reconcile", "Reconcile now", asks=False)
    await desk.given(it_is_seen_for_long_enough)
    await desk.action("reconcile").get_by_role("button", name="Reconcile now").click()
    done = await desk.press("approve", "Approve all that wait", reason="the fire brigade", typed=desk.event_id)
    assert "1 reservation loses its tickets" in done
    await expect(desk.page.locator("dialog.drawer")).to_contain_text("Decided by operator: the fire brigade")
