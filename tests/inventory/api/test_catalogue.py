"""The fans' API: the catalogue, availability, reservations, seats for admitted fans, and published stock frames."""

import asyncio

import pytest

from services.inventory.catalogue.read_event_file import read_event_file
from services.inventory.redis_keys import Keys
from shared.contracts.frames import StockFrame, stock_channel
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.suite import bearer, problem


async def test_the_catalogue_shows_prices_with_fees_and_limits(inventory: Inventory) -> None:
    listed = (await inventory.fans.get("/events")).json()
    assert listed["events"] == [
        {"event_id": EVENT, "name": "A Show", "venue": "A Hall", "starts_at": "2027-03-05T19:30:00Z",
         "ends_at": None, "timezone": "UTC",
         "currency": "EUR", "price_from_minor": 3100, "picture": None}
    ]  # fmt: skip
    assert listed["next"] is None
    event = (await inventory.fans.get(f"/events/{EVENT}")).json()
    tickets = {"tickets_per_order": 6, "tickets_per_customer": 6, "tour_tickets_per_customer": 0}
    assert event["limits"] == {**tickets, "hold_ttl_s": 600, "pay_ttl_s": 300, "single_seats": "tell"}
    assert event["sections"][0] == {
        "section_id": "A", "name": "Block A", "kind": "seated", "type": "Reserved seating", "capacity": 15,
        "price_minor": 5250, "regular_price_minor": 5250, "currency": "EUR", "rows": 3, "seats_per_row": 5,
        "price_levels": [], "prices": {}, "traits": [],
    }  # fmt: skip
    assert problem(await inventory.fans.get("/events/nowhere")) == (404, "unknown-event")


async def test_the_names_that_an_event_asks_for_are_shown_and_read_back(inventory: Inventory) -> None:
    path = f"/events/{EVENT}"
    shown = [(await inventory.fans.get(path)).json()[name] for name in ("names", "names_until")]
    assert shown == ["none", None]
    until = "2027-03-01T13:00:00+01:00"
    file = event_file(names="ticket", names_until=until) | {"timezone": "Europe/Berlin"}
    assert (await inventory.put(file)).json()["changed"] is True
    event = (await inventory.fans.get(path)).json()
    assert (event["names"], event["names_until"]) == ("ticket", "2027-03-01T12:00:00Z")
    stored = await read_event_file(inventory.state.db, EVENT)
    assert stored.sales.names == "ticket"
    assert stored.sales.model_dump(mode="json")["names_until"] == until, "as it stood in the file"
    again = await inventory.put({**stored.model_dump(mode="json"), "room": {}})
    assert again.json()["changed"] is False, again.text
    assert (await inventory.put(event_file(names="order"))).json()["changed"] is True
    event = (await inventory.fans.get(path)).json()
    assert (event["names"], event["names_until"]) == ("order", event["starts_at"]), "until the show starts"


async def test_events_are_listed_in_pages_by_their_start(inventory: Inventory) -> None:
    for event_id, starts_at in (("later", "2027-03-06T19:30:00Z"), ("same-day", "2027-03-05T19:30:00Z")):
        assert (await inventory.put({**event_file(), "event_id": event_id, "starts_at": starts_at})).is_success
    first = (await inventory.fans.get("/events?page_size=2")).json()
    assert [event["event_id"] for event in first["events"]] == ["same-day", EVENT]
    assert first["next"] == f"/events?after={EVENT}&page_size=2"
    last = (await inventory.fans.get(first["next"])).json()
    assert ([event["event_id"] for event in last["events"]], last["next"]) == (["later"], None)
    assert (await inventory.fans.get("/events?after=unknown")).json() == {"events": [], "next": None}


async def test_sections_are_cacheable_and_their_etag_changes_with_the_stock(inventory: Inventory) -> None:
    path = f"/events/{EVENT}/sections"
    first = await inventory.fans.get(path)
    assert first.headers["cache-control"] == "public, max-age=1"
    assert first.json()["sections"][2] == {
        "section_id": "GA1", "name": "Floor", "kind": "ga", "type": "General Admission", "total_seats": 20,
        "available_seats": 20, "held_seats": 0, "reserved_seats": 0, "price_minor": 3100, "currency": "EUR",
    }  # fmt: skip
    unchanged = await inventory.fans.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


async def test_a_fan_reserves_seats_and_ga_tickets_together(inventory: Inventory) -> None:
    answer = await inventory.reserve(seats=["A-1-1", "A-1-2"], ga=[{"section_id": "GA1", "quantity": 2}])
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert (body["seats"], body["ga"]) == (["A-1-1", "A-1-2"], [{"section_id": "GA1", "quantity": 2}])
    assert (body["ga_section"], body["ga_quantity"]) == ("GA1", 2)
    assert (body["total_amount_minor_units"], body["currency"]) == (2 * 5250 + 2 * 3100, "EUR")
    assert body["status"] == "pending_payment"
    assert (await inventory.fan_request("GET", body["reservation_id"])).json() == body
    assert await inventory.counts("A") == (13, 2)
    assert await inventory.violations() == []


async def test_an_admitted_fan_pages_through_the_seats(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-2-1"])
    path, headers = f"/events/{EVENT}/sections/A/seats", bearer(make_pass("fan"))
    page = (await inventory.fans.get(f"{path}?page=2&page_size=4", headers=headers)).json()
    assert (page["total_seats"], page["page"], page["page_size"]) == (15, 2, 4)
    assert [(s["seat_id"], s["row"], s["number"], s["status"]) for s in page["seats"]] == [
        ("A-1-5", "1", 5, "available"), ("A-2-1", "2", 1, "reserved"), ("A-2-2", "2", 2, "available"),
        ("A-2-3", "2", 3, "available"),
    ]  # fmt: skip
    await inventory.state.redis_stock.redis.hset(Keys.of(EVENT).meta, mapping={"ready": 0, "rebuild_renewed_at": 9**15})
    assert (await inventory.fans.get(f"{path}?page=2&page_size=4", headers=headers)).json() == page
    assert (await inventory.fans.get(f"{path}?page=99", headers=headers)).json()["seats"] == []
    assert (await inventory.fans.get(path)).status_code == 401


@pytest.mark.usefixtures("loops")
async def test_a_hold_publishes_frames_with_rising_versions(inventory: Inventory) -> None:
    pubsub = inventory.state.redis_stock.redis.pubsub()
    await pubsub.subscribe(stock_channel(EVENT))
    await inventory.reserve(seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    frames: list[StockFrame] = []
    async with asyncio.timeout(5):
        while not frames or frames[-1].held != 3:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
            if message:
                frames.append(StockFrame.model_validate_json(message["data"]))
    await pubsub.aclose()
    last = frames[-1]
    assert [(s.section_id, s.available, s.held) for s in last.sections] == [("A", 14, 1), ("B", 8, 0), ("GA1", 18, 2)]
    assert last.ready
    assert last.holders_holding == 1
    assert last.epoch == inventory.state.catalogue.layout(EVENT).redis_epoch
    assert [f.version for f in frames] == sorted({f.version for f in frames})


async def test_an_unchanged_event_file_changes_nothing_and_a_new_price_applies_to_new_holds(
    inventory: Inventory,
) -> None:
    assert (await inventory.put(event_file())).json()["changed"] is False
    held = (await inventory.reserve(seats=["A-1-1"])).json()
    file = event_file()
    file["sections"][0]["price_minor"] = 9000
    assert (await inventory.put(file)).json()["changed"] is True
    assert (await inventory.fan_request("GET", held["reservation_id"])).json()["total_amount_minor_units"] == 5250
    assert (await inventory.fans.get(f"/events/{EVENT}")).json()["sections"][0]["price_minor"] == 9250
    assert await inventory.counts("A") == (14, 1)


async def test_the_fast_route_of_reservations_is_documented(inventory: Inventory) -> None:
    document = (await inventory.fans.get("/openapi.json")).json()
    operation = document["paths"]["/events/{event_id}/reservations"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    body = document["components"]["schemas"][schema]
    assert {"seats", "ga", "ga_section", "ga_quantity", "email"} <= body["properties"].keys()


async def test_published_availability_is_never_negative(inventory: Inventory) -> None:
    """A block and holds that the database will refuse can bring the counter below zero for a moment."""
    await inventory.state.redis_stock.redis.hset(Keys.of(EVENT).counts, "GA1:available", "-4")
    frame = await inventory.state.availability.frame(inventory.state.catalogue.layout(EVENT))
    assert next(section.available for section in frame.sections if section.section_id == "GA1") == 0


async def test_an_event_file_changes_rows_and_adds_sections_but_cannot_remove_held_stock(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-2-2", "B-1-1"], ga_section="GA1", ga_quantity=3)
    in_a, in_b, no_seats = {"held": ["A-2-2"]}, {"held": ["B-1-1"]}, None
    for n, fields, seats in (
        (0, {"rows": 1}, in_a), (0, {"seats_per_row": 4}, in_a), (2, {"capacity": 2}, no_seats), (1, None, in_b)
    ):  # fmt: skip
        file = event_file()
        file["sections"][n : n + 1] = [{**file["sections"][n], **fields}] if fields else []
        answer = await inventory.put(file)
        assert (problem(answer), answer.json().get("seats")) == ((409, "stock-conflict"), seats), fields
    file = event_file()
    file["sections"][0]["rows"], file["sections"][1]["rows"] = 2, 3
    file["sections"].append({**file["sections"][0], "section_id": "C"})
    assert (await inventory.put(file)).json()["changed"] is True
    await inventory.until_ready()
    assert [await inventory.redis_counts(section) for section in "ABC"] == [(9, 1), (11, 1), (10, 0)]
    assert (await inventory.reserve("other", seats=["C-1-1", "B-3-4"])).status_code == 201
    file["currency"] = "USD"
    assert problem(await inventory.put(file)) == (409, "stock-conflict")
    assert await inventory.violations() == []
