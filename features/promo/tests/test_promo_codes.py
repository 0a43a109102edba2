"""Promo codes: their limits hold for concurrent orders, an order that ends unpaid releases its use, and people may type
them with letters of any script, blanks, and whatever pasting adds.
"""

import asyncio
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from features.promo.orders.codes import WRONG_AT_ONCE
from features.promo.orders.tables import promo_code
from shared.contracts.inventory import ReservedItem
from shared.security.limits import ADDRESS_AT_ONCE
from tests.orders.priced_event import Sale, open_sale
from tests.orders.shop import VIEWER_SECRET, Shop
from tests.support.wait import wait_until

FANS = 100


def outcome(answer):
    """The status of an answer, and the problem and reason of a refusal."""
    body = answer.json()
    return answer.status_code, body.get("type", "").removeprefix("/problems/"), body.get("reason")


def refusal(reason: str):
    return 422, "promo-code-not-valid", reason


async def sales_of_two_processes(processes) -> list[Sale]:
    """One event, at each of two processes."""
    sale = await open_sale(await processes.open())
    return [sale, Sale(await processes.open(), sale.event_id)]


@pytest.mark.parametrize(
    ("limit", "emails", "uses", "reason"),
    [
        ({"uses_max": 10}, [None], 10, "used-up"),
        ({"customer_uses_max": 2}, ["ada@example.org", "Ada@Example.org", "grace@example.org"], 4, "customer-limit"),
    ],
    ids=["in all", "per customer"],
)
async def test_concurrent_orders_use_a_code_exactly_to_its_limit(processes, limit, emails, uses, reason):
    sales = await sales_of_two_processes(processes)
    await sales[0].put_code("RUSH", amount_minor=1000, **limit)
    holds = [await sales[0].hold(holder=f"fan-{n}") for n in range(FANS)]
    orders = [
        sales[n % 2].order(hold, 9000, "rush", holder=f"fan-{n}", email=emails[n % len(emails)])
        for n, hold in enumerate(holds)
    ]
    answers = await asyncio.gather(*orders)
    assert Counter(map(outcome, answers)) == {(202, "", None): uses, refusal(reason): FANS - uses}
    assert await sales[0].uses("RUSH") == uses
    refused = [hold for hold, answer in zip(holds, answers, strict=True) if answer.status_code == 422]
    assert {await processes.inventory.status(hold) for hold in refused} == {"pending_payment"}


@pytest.mark.parametrize("status", ["cancelled", "expired"])
async def test_an_order_that_ends_unpaid_releases_its_use_of_the_code(shop, status):
    sale = await open_sale(shop)
    await sale.put_code("ONCE", percent=10, uses_max=1, customer_uses_max=1)
    declined = await sale.order(await sale.hold(), 9000, "ONCE", method="decline", email="ada@example.org")
    reference = declined.json()["reference"]
    assert outcome(await sale.order(await sale.hold(holder="b"), 9000, "ONCE", holder="b")) == refusal("used-up")
    if status == "cancelled":
        await wait_until(lambda: shop.attempt_is(reference, "failed"))
        assert (await shop.cancel(reference, event_id=sale.event_id)).is_success
    else:
        await shop.expire(reference)

    await sale.wait_for_status(reference, status)
    assert await sale.uses("ONCE") == 0
    answer = await sale.order(await sale.hold(holder="b"), 9000, "ONCE", holder="b", email="ada@example.org")
    assert answer.status_code == 202, answer.text
    listed = (await sale.admin_request("GET", "/promo-codes/once/uses")).json()["uses"]
    assert [(use["status"], use["counts"]) for use in listed][1] == (status, False)
    assert [use["counts"] for use in listed] == [True, False]
    assert await pages(sale, "/promo-codes/once/uses?page_size=1", "uses") == [[use["reference"]] for use in listed]


async def test_a_repeated_request_uses_the_code_once(processes):
    sale, _ = sales = await sales_of_two_processes(processes)
    await sale.put_code("ONCE", percent=10, uses_max=1, customer_uses_max=1)
    hold, key = await sale.hold(), uuid.uuid4().hex
    requests = [sales[n % 2].order(hold, 9000, "ONCE", key=key, email="ada@example.org") for n in range(20)]
    answers = await asyncio.gather(*requests)
    assert {answer.status_code for answer in answers} <= {202, 409}, [answer.text for answer in answers]
    answers.append(await sale.order(hold, 9000, "ONCE", key=key, email="ada@example.org"))
    assert len({answer.json()["reference"] for answer in answers if answer.status_code == 202}) == 1
    assert (answers[-1].status_code, await sale.uses("ONCE")) == (202, 1)


async def test_a_code_is_valid_within_its_time_window_only(shop):
    sale = await open_sale(shop)
    hold, now, hour = await sale.hold(), datetime.now(UTC), timedelta(hours=1)
    windows = {
        "now": (now - hour, now + hour, True), "past": (now - hour, now - timedelta(milliseconds=1), False),
        "later": (now + hour, None, False), "begun": (now, None, True), "open": (None, now + hour, True),
    }  # fmt: skip
    for code, (first, last, good) in windows.items():
        times = {"valid_from": first and first.isoformat(), "valid_until": last and last.isoformat()}
        await sale.put_code(code, percent=10, **times)
        answer = await sale.quote(hold, code)
        assert outcome(answer) == ((200, "", None) if good else refusal("unknown")), code


async def test_a_code_covers_its_sections_only_and_may_need_several_tickets(shop):
    sale = await open_sale(shop)
    await sale.put_code("STALLS", amount_minor=300, section_ids=["A"], tickets_min=2)
    one, *two = [ReservedItem(section_id="A", seat_id=f"A-1-{n}", unit_price_minor=1000) for n in (1, 2, 3)]
    floor = ReservedItem(section_id="GA1", unit_price_minor=5000)
    both = (await sale.quote(await sale.hold(*two, floor), "STALLS")).json()
    assert [line["paid_minor"] for line in both["lines"]] == [850, 850, 5000]
    assert outcome(await sale.quote(await sale.hold(floor), "STALLS")) == refusal("sections")
    assert outcome(await sale.quote(await sale.hold(one, floor), "STALLS")) == refusal("minimum-tickets")
    unknown = await sale.admin_request("PUT", "/promo-codes/X", body={"percent": 1, "section_ids": ["Z"]})
    assert unknown.status_code == 422


async def test_wrong_codes_get_equal_answers_and_only_the_guesser_is_limited(shop):
    sale = await open_sale(shop)
    await sale.put_code("STOPPED", percent=10)
    await sale.admin_request("DELETE", "/promo-codes/stopped?reason=leaked")
    await sale.put_code("GOOD", percent=10)
    hold = await sale.hold(holder="guesser")
    documents = [(await sale.quote(hold, code, holder="guesser")).json() for code in ("STOPPED", "NEVER")]
    for document in documents:
        document.pop("request_id")
    assert documents[0] == documents[1]
    for n in range(8):
        answer = await sale.order(hold, 9000, f"GUESS-{n}", holder="guesser")
        assert outcome(answer) == refusal("unknown")
    answer = await sale.quote(hold, "GOOD", holder="guesser")
    assert outcome(answer) == (429, "too-many-wrong-codes", None)
    assert 1 <= int(answer.headers["retry-after"]) <= 6
    assert (await sale.quote(hold, holder="guesser")).status_code == 200
    assert (await sale.quote(await sale.hold(), "GOOD")).status_code == 200


async def test_codes_guessed_at_once_are_looked_up_to_the_limit_only(shop, monkeypatch):
    sale = await open_sale(shop)
    await sale.put_code("GOOD", percent=10)
    looked_up, read = [], shop.state.prices.codes.read

    def count(redemption):
        looked_up.append(redemption.code)
        return read(redemption)

    monkeypatch.setattr(shop.state.prices.codes, "read", count)
    hold = await sale.hold(holder="guesser")
    answers = await asyncio.gather(*(sale.quote(hold, f"GUESS-{n}", holder="guesser") for n in range(200)))
    assert len(looked_up) == WRONG_AT_ONCE
    assert Counter(answer.status_code for answer in answers) == {422: 10, 429: 190}
    assert (await sale.quote(await sale.hold(), "GOOD")).status_code == 200, "another fan is not limited"


async def test_a_stopped_code_keeps_its_discount_for_earlier_orders(shop):
    sale = await open_sale(shop)
    await sale.put_code("GONE", percent=50)
    reference = (await sale.order(await sale.hold(), 5000, "GONE")).json()["reference"]
    assert (await sale.admin_request("DELETE", "/promo-codes/GONE")).json()["changed"] is True
    assert outcome(await sale.order(await sale.hold(), 5000, "GONE")) == refusal("unknown")
    assert (await sale.view(reference))["total_minor"] == 5000
    await sale.put_code("gone", percent=50)
    assert (await sale.order(await sale.hold(), 5000, "GONE")).status_code == 202


async def pages(sale, path, name):
    """The codes or references of each page."""
    found = []
    while path:
        page = (await sale.admin_request("GET", path)).json()
        found.append([row.get("code") or row["reference"] for row in page[name]])
        path = page["next"] and page["next"].partition(sale.event_id)[2]
    return found


async def test_operators_manage_promo_codes_and_every_change_is_logged(shop):
    sale = await open_sale(shop)
    body = {"percent": "12.5", "uses_max": 5, "reason": "radio"}
    assert (await sale.admin_request("PUT", "/promo-codes/RADIO", body=body, secret=VIEWER_SECRET)).status_code == 403
    assert (await sale.admin_request("DELETE", "/promo-codes/NONE")).status_code == 404
    assert [(await sale.put_code("radio", **body))["changed"] for _ in range(2)] == [True, False]
    await sale.admin_request("DELETE", "/promo-codes/RADIO?reason=over")
    changes = (await sale.admin_request("GET", "/price-changes", secret=VIEWER_SECRET)).json()["changes"]
    assert [(line["actor"], line["action"], line["after"].get("code"), line["reason"]) for line in changes] == [
        ("ops", "stop-code", "RADIO", "over"), ("ops", "put-code", "RADIO", "radio"), ("root", "apply", None, None),
    ]  # fmt: skip
    assert (changes[1]["before"], changes[1]["after"]["percent"]) == (None, "12.5")
    listed = (await sale.admin_request("GET", "/promo-codes", secret=VIEWER_SECRET)).json()["promo_codes"]
    assert [(code["code"], code["uses"]) for code in listed] == [("RADIO", 0)]
    assert listed[0]["stopped_at"]
    await sale.put_code("early", percent=5)
    assert await pages(sale, "/promo-codes?page_size=1", "promo_codes") == [["EARLY"], ["RADIO"]]
    assert await pages(sale, "/promo-codes?page_size=1&after=early", "promo_codes") == [["RADIO"]]
    unknown = await Sale(shop).admin_request("PUT", "/promo-codes/X", body={"percent": 10})
    assert outcome(unknown)[:2] == (404, "unknown-event")


async def test_fans_at_one_network_address_share_a_limit_of_wrong_codes(shop):
    sale = await open_sale(shop)
    await sale.put_code("GOOD", percent=10)
    sale.shop.http.headers["x-forwarded-for"] = "198.51.100.7"
    statuses = []
    for n in range(70):
        holder = f"guesser-{n}"
        statuses.append((await sale.quote(await sale.hold(holder=holder), f"GUESS-{n}", holder=holder)).status_code)
    limit = ADDRESS_AT_ONCE
    assert statuses[:limit] == [422] * limit
    assert set(statuses[limit:]) <= {422, 429}, "the limit refills with time"
    assert statuses[limit:].count(429) > (70 - limit) / 2
    sale.shop.http.headers["x-forwarded-for"] = "198.51.100.8"
    assert (await sale.quote(await sale.hold(holder="fan"), "GOOD")).status_code == 200, (
        "another address is not limited"
    )


@pytest.mark.parametrize(
    ("code", "typed"),
    [
        pytest.param("FRÜHBUCHER", ["frühbucher", "fru\u0308hbucher", " FRÜHBUCHER\n"], marks=pytest.mark.proof),
        ("SUMMER 27", ["summer 27", "SUMMER\u00a027", "Summer\n27", "summer27", "\u200bSUMMER  27 "]),
        pytest.param("10% OFF!", ["10% off!", "10%off!"], marks=pytest.mark.proof),
        pytest.param("ΧΕΙΜΏΝΑΣ", ["χειμώνας"], marks=pytest.mark.proof),
        ("خصم ٢٧", ["خصم ٢٧", "خصم٢٧"]),
        pytest.param("EARLY", ["early", "\tEar\u00adly "], marks=pytest.mark.proof),
    ],
)
async def test_a_code_is_made_shown_and_used_however_it_is_typed(shop: Shop, code: str, typed: list[str]) -> None:
    sale = await open_sale(shop)
    made = await sale.put_code(code, percent=10)
    listed = (await sale.admin_request("GET", "/promo-codes")).json()["promo_codes"]
    assert made["code"] == code
    assert [one["code"] for one in listed] == [code]
    for n, one in enumerate(typed):
        answer = await sale.quote(await sale.hold(), one)
        assert answer.json()["total_minor"] == 9000, (one, answer.text)
        assert [extra["name"] for extra in answer.json()["extras"]] == [code]
        ordered = await sale.order(await sale.hold(holder=f"fan-{n}"), 9000, one, holder=f"fan-{n}")
        assert ordered.status_code == 202, ordered.text
    read = await sale.admin_request("GET", f"/promo-codes/{quote(typed[0], safe='')}")
    assert (read.json()["code"], read.json()["uses"]) == (code, len(typed))
    uses = (await sale.admin_request("GET", f"/promo-codes/{quote(code, safe='')}/uses")).json()["uses"]
    assert len(uses) == len(typed)
    stopped = await sale.admin_request("DELETE", f"/promo-codes/{quote(code, safe='')}")
    assert stopped.json()["stopped_at"] is not None
    refused = await sale.quote(await sale.hold(), code)
    assert outcome(refused) == refusal("unknown")


async def test_codes_that_differ_in_case_and_blanks_only_are_one(shop: Shop) -> None:
    sale = await open_sale(shop)
    await sale.put_code("SUMMER 27", percent=10)
    again = await sale.put_code(" summer\u00a0 27", percent=10)
    assert (again["code"], again["changed"]) == ("SUMMER 27", False)
    other = await sale.put_code("summer27", percent=20)
    assert (other["code"], other["changed"]) == ("SUMMER27", True)
    listed = (await sale.admin_request("GET", "/promo-codes")).json()["promo_codes"]
    assert [(one["code"], one["percent"]) for one in listed] == [("SUMMER27", "20")]


async def test_pages_of_codes_go_on_after_one_with_a_blank(shop: Shop) -> None:
    sale = await open_sale(shop)
    for code in ("A B", "A C", "Ä"):
        await sale.put_code(code, percent=10)
    first = (await sale.admin_request("GET", "/promo-codes?page_size=2")).json()
    rest = (await sale.admin_request("GET", "/promo-codes?page_size=2&" + first["next"].partition("?")[2])).json()
    assert {one["code"] for one in first["promo_codes"] + rest["promo_codes"]} == {"A B", "A C", "Ä"}
    assert rest["next"] is None


async def test_codes_of_an_earlier_version_go_on_working(shop: Shop) -> None:
    sale = await open_sale(shop)
    await sale.put_code("VIP_2027-X", percent=10)
    async with shop.app.state.deps.db.begin() as connection:
        await connection.execute(promo_code.update().values(written=None))
    for typed in ("VIP_2027-X", "vip_2027-x ", "vip_2027\u2011x"):
        assert (await sale.quote(await sale.hold(), typed)).json()["total_minor"] == 9000


async def test_what_is_no_code_is_refused_like_a_wrong_one(shop: Shop) -> None:
    sale = await open_sale(shop)
    for typed in ("***", "a/b", "x" * 150, "<b>", "日本"):
        answer = await sale.quote(await sale.hold(), typed)
        assert outcome(answer) == refusal("unknown"), typed
        assert answer.json()["detail"] == "This promo code is not valid."


async def test_a_code_that_nobody_could_type_cannot_be_made(shop: Shop) -> None:
    sale = await open_sale(shop)
    for code in ("***", "a\\b", "x" * 65, "%20"):
        path = f"/promo-codes/{code if code == '%20' else quote(code, safe='')}"
        answer = await sale.admin_request("PUT", path, body={"percent": 10})
        assert outcome(answer)[:2] == (422, "invalid-request"), code
        assert "letters, digits and signs" in answer.json()["detail"]
        assert not set("^[]{}$") & set(answer.json()["detail"])


async def test_without_the_feature_every_code_is_wrong_and_the_sale_goes_on(processes):
    sale = await open_sale(await processes.open(features_off=frozenset({"promo"})))
    hold = await sale.hold()
    assert outcome(await sale.quote(hold, "RADIO")) == refusal("unknown")
    assert outcome(await sale.order(hold, 9000, "RADIO")) == refusal("unknown")
    assert (await sale.admin_request("PUT", "/promo-codes/RADIO", body={"percent": 10})).status_code == 404
    assert (await sale.order(hold, 10_000)).status_code == 202
