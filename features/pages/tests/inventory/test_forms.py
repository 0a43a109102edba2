"""Forms of reservations: fields become the API's body; the gateway finds a holder's hold, and a section's seats."""

import pytest

from features.pages.forms import FormFields
from features.pages.inventory import reserve_body, types_body
from shared.security.tokens import pass_cookie
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.inventory.reservations.test_price_types import priced_file

PATH, PAGE = f"/events/{EVENT}/reservations", f"/e/{EVENT}"


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (b"quantity=2&where=&key=k", {"best_available": {"quantity": 2}}),
        (b"quantity=3&where=A&split=1", {"best_available": {"quantity": 3, "section_id": "A", "split": True}}),
        (b"seat=A-1-1&seat=A-1-2&section=A", {"seats": ["A-1-1", "A-1-2"]}),
        (b"ga.GA1=2&ga.GA2=0", {"ga": [{"section_id": "GA1", "quantity": 2}]}),
        (b"quantity=many", {"best_available": {"quantity": "many"}}),
        (b"quantity=-1", {"best_available": {"quantity": "-1"}}),
        (b"", {}),
    ],
)
def test_fields_become_the_body_of_the_api(form, body):
    assert reserve_body(FormFields(form)) == body


async def send(inventory: Inventory, path: str, fields: dict, holder: str = "fan", **headers: str):
    cookie = f"{pass_cookie(EVENT)}={make_pass(holder)}"
    own = {"cookie": cookie, "origin": str(inventory.fans.base_url).rstrip("/"), **headers}
    return await inventory.fans.post(path, data=fields, headers=own)


async def found(inventory: Inventory, holder: str = "fan") -> dict:
    answer: dict = await inventory.post_internal("/reservations/of-holder", {"event_id": EVENT, "holder": holder})
    return answer


async def test_a_form_holds_once_however_often_it_is_sent(inventory: Inventory):
    assert (await found(inventory))["reservation"] is None
    answers = [await send(inventory, PATH, {"quantity": "2", "key": "k1"}) for _ in range(3)]
    assert {(answer.status_code, answer.headers["location"]) for answer in answers} == {(303, PAGE)}
    held = (await found(inventory))["reservation"]
    assert (held["status"], len(held["lines"]), (await inventory.counts("GA1"))[1]) == ("pending_payment", 2, 0)
    kept = answers[0].headers["set-cookie"]
    assert kept.startswith("onsale_plain=1; ")
    assert f"onsale_reservation_{EVENT}={held['reservation_id']}; " in ",".join(
        answers[0].headers.get_list("set-cookie")
    )
    assert (await found(inventory, "somebody"))["reservation"] is None


async def test_a_refused_form_leads_back_to_the_section_that_was_shown(inventory: Inventory):
    await inventory.hold("rival", seats=["A-1-1"])
    answer = await send(inventory, PATH, {"seat": "A-1-1", "section": "A", "key": "k"})
    assert answer.headers["location"] == f"{PAGE}?section=A&problem=seats-taken"
    for section in ("//evil.example", "A&problem=x", "A\r\nset-cookie: x=1"):
        answer = await send(inventory, PATH, {"seat": "A-1-1", "section": section, "key": "k"})
        assert answer.headers["location"] == f"{PAGE}?problem=seats-taken", section


async def test_forms_extend_once_keep_a_part_and_release(inventory: Inventory):
    await send(inventory, PATH, {"seat": ["A-1-1", "A-1-2"], "key": "k"})
    held = (await found(inventory))["reservation"]["reservation_id"]
    assert (await send(inventory, f"{PATH}/{held}/extend", {"x": "1"})).headers["location"] == PAGE
    assert (await found(inventory))["extended"] is True
    again = await send(inventory, f"{PATH}/{held}/extend", {"x": "1"})
    assert again.headers["location"] == f"{PAGE}?problem=already-extended"
    await send(inventory, f"{PATH}/{held}/keep", {"seat": "A-1-1"})
    assert len((await found(inventory))["reservation"]["lines"]) == 1
    stranger = await send(inventory, f"{PATH}/{held}", {"_method": "DELETE"}, "stranger")
    assert stranger.headers["location"] == f"{PAGE}?problem=unknown-reservation"
    assert (await send(inventory, f"{PATH}/{held}", {"_method": "DELETE"})).headers["location"] == PAGE
    assert (await found(inventory))["reservation"] is None


async def test_the_gateway_reads_the_seats_of_a_section(inventory: Inventory):
    await inventory.hold("fan", seats=["A-1-2"])
    page = await inventory.post_internal(
        "/sections/seats", {"event_id": EVENT, "section_id": "A", "page": 1, "page_size": 10}
    )
    assert [seat["status"] for seat in page["seats"]] == ["available", "reserved", *["available"] * 8]
    assert (page["total_seats"], page["seats"][0]["price_minor"], page["seats"][-1]["seat_id"]) == (15, 5250, "A-2-5")


async def test_a_form_that_leaves_a_seat_alone_is_told_so_on_the_next_page(inventory: Inventory):
    answer = await send(inventory, PATH, {"seat": "B-1-2", "section": "B", "key": "k"})
    assert answer.headers["location"] == f"{PAGE}?alone=B-1-1"
    held = (await found(inventory))["reservation"]["reservation_id"]
    await send(inventory, f"{PATH}/{held}", {"_method": "DELETE"})
    await inventory.put(event_file(single_seats="refuse"))
    refused = await send(inventory, PATH, {"seat": ["B-1-2", "B-1-3"], "section": "B", "key": "k2"})
    assert refused.headers["location"] == f"{PAGE}?section=B&better=B-1-1.B-1-2&alone=B-1-1.B-1-4&problem=single-seat"
    taken = await send(inventory, PATH, {"seat": ["B-1-1", "B-1-2"], "key": "k3"})
    assert taken.headers["location"] == PAGE


# -- price types -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (b"best=1&type.adult=1&type.child=2&type.senior=0&where=A",
         {"best_available": {"quantity": 3, "section_id": "A", "types": {"adult": 1, "child": 2}}}),
        (b"best=1&type.adult=0", {"best_available": {"quantity": 0}}),
        (b"ga.GA1=1&ga.GA1~child=2&ga.GA1~senior=0&code=FRIENDS",
         {"ga": [{"section_id": "GA1", "quantity": 1}, {"section_id": "GA1", "type_id": "child", "quantity": 2}],
          "code": "FRIENDS"}),
        (b"best=1&type.adult=1&wheelchair=1&companions=2&wheelchair_type=chair&companion_type=carer",
         {"best_available": {"quantity": 4, "wheelchair": 1, "companions": 2,
                             "types": {"adult": 1, "chair": 1, "carer": 1}}}),
        (b"best=1&type.carer=1&type.disabled=1&wheelchair=1&companions=1&wheelchair_type=chair&companion_type=carer",
         {"best_available": {"quantity": 4, "wheelchair": 1, "companions": 1,
                             "types": {"carer": 2, "disabled": 1, "chair": 1}}}),
        (b"quantity=0&wheelchair=1&companions=0",
         {"best_available": {"quantity": 1, "wheelchair": 1, "companions": 0}}),
        (b"quantity=2&wheelchair=0&companions=0", {"best_available": {"quantity": 2}}),
        (b"quantity=2&wheelchair=many", {"best_available": {"quantity": 2, "wheelchair": "many"}}),
    ],
)  # fmt: skip
def test_numbers_by_price_type_become_the_body_of_the_api(form, body):
    assert reserve_body(FormFields(form)) == body


def test_the_types_of_a_hold_become_the_body_of_the_api():
    form = FormFields(b"type.A-1-1=child&type.GA1=adult&type.GA1=child&type.GA1=adult&promo_code=x&code=")
    assert types_body(form) == {"types": {"A-1-1": "child"}, "ga": [
        {"section_id": "GA1", "type_id": "adult", "quantity": 2},
        {"section_id": "GA1", "type_id": "child", "quantity": 1},
    ]}  # fmt: skip


async def test_forms_hold_by_type_and_change_the_types_of_a_hold(inventory: Inventory):
    assert (await inventory.put(priced_file())).status_code == 200
    best = {"best": "1", "type.adult": "1", "type.child": "1", "where": "B", "key": "k"}
    assert (await send(inventory, PATH, best)).headers["location"] == PAGE
    answer = await found(inventory)
    held = answer["reservation"]
    assert [line["type_id"] for line in held["lines"]] == ["", "child"]
    assert answer["prices"][0] == {"adult": 4000, "child": 2000, "member": 1000, "early": 3600}
    change = {f"type.{line['seat_id']}": "member" for line in held["lines"]} | {"promo_code": "EARLY"}
    path = f"{PATH}/{held['reservation_id']}/types"
    refused = await send(inventory, path, change | {"code": "WRONG"})
    assert refused.headers["location"] == f"{PAGE}?promo=EARLY&type=member&reason=code&problem=price-type-refused"
    assert "onsale_typed=type.B" in refused.headers["set-cookie"], "what was chosen is kept"
    changed = await send(inventory, path, change | {"code": "friends 26"})
    assert changed.headers["location"] == f"{PAGE}?promo=EARLY"
    assert [line["type_id"] for line in (await found(inventory))["reservation"]["lines"]] == ["member", "member"]


async def test_a_type_that_is_used_up_is_named_in_the_address(inventory: Inventory):
    assert (await inventory.put(priced_file())).status_code == 200
    await inventory.hold("rival", ga=[{"section_id": "GA1", "quantity": 3, "type_id": "child"}])
    answer = await send(inventory, PATH, {"ga.GA1~child": "2", "key": "k"})
    assert answer.headers["location"] == f"{PAGE}?type=child&n=1&problem=sold-out"
    fields = {"quantity": "0", "wheelchair": "3", "companions": "1", "where": "A", "key": "k"}
    few = await send(inventory, PATH, fields)
    assert few.headers["location"] == f"{PAGE}?wheelchair=2&companions=2&problem=no-accessible-places"
    refused = await send(inventory, PATH, {"ga.GA1~early": "1", "key": "k"})
    assert refused.headers["location"] == f"{PAGE}?type=early&reason=lane&problem=price-type-refused"
