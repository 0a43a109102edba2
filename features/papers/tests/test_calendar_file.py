"""The show of an order as a calendar file."""

from datetime import UTC, datetime

from tests.orders.delivery.test_tickets import apply_event_file, bought, get


async def test_the_show_of_an_order_is_a_calendar_file_in_its_language(shop):
    await apply_event_file(shop, name="Nacht; Licht, und\nSchatten " * 4, timezone="Europe/Berlin")
    body = shop.body(await shop.inventory.hold()) | {"language": "de"}
    reference = (await shop.post(body)).json()["reference"]
    file = await get(shop, f"/orders/{reference}/event.ics")
    assert file.headers["content-type"].startswith("text/calendar")
    lines = file.content.split(b"\r\n")
    assert max(map(len, lines)) <= 75
    text = file.content.replace(b"\r\n ", b"").decode()
    assert "DTSTART;TZID=Europe/Berlin:20300504T200000" in text
    assert "SUMMARY;LANGUAGE=de:Nacht\\; Licht\\, und\\nSchatten" in text
    assert f"DESCRIPTION;LANGUAGE=de:Bestellung {reference}." in text
    assert f"URL:https://shop.test/o/{reference}" in text or f"/o/{reference}" in text
    made = next(line for line in text.splitlines() if line.startswith("DTSTAMP:")).removeprefix("DTSTAMP:")
    age = datetime.now(UTC) - datetime.strptime(made, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs(age.total_seconds()) < 600
    shop.http.cookies.clear()
    assert (await shop.http.get(f"/orders/{reference}/event.ics")).status_code == 401
    assert (await get(shop, f"/orders/{reference}/event.ics", holder="somebody")).status_code == 404


async def test_the_calendar_file_has_the_end_and_the_seats_that_are_still_good(shop):
    await apply_event_file(shop, ends_at="2030-05-05T02:30:00+02:00", timezone="Europe/Berlin")
    reference = await bought(shop)
    text = (await get(shop, f"/orders/{reference}/event.ics")).text.replace("\r\n ", "")
    assert "DTEND;TZID=Europe/Berlin:20300505T023000\r\n" in text
    assert rf"DESCRIPTION;LANGUAGE=en:Order {reference}.\nBlock A\, row 1\, seat 2\n2 × Floor" in text
    assert (await shop.admin_post(f"{reference}/refund", tickets={"seats": ["A-1-2"]}, key="k")).is_success
    await shop.wait_for_status(reference, "partially_refunded")
    text = (await get(shop, f"/orders/{reference}/event.ics")).text.replace("\r\n ", "")
    assert rf"Order {reference}.\n2 × Floor" in text


async def test_an_event_without_a_time_has_no_calendar_file(shop):
    reference = await shop.order()
    assert (await get(shop, f"/orders/{reference}/event.ics")).status_code == 404
