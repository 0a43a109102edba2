"""Promo codes as people make and type them: letters of any script, blanks, whatever pasting adds."""

from urllib.parse import quote

import pytest

from services.orders.tables import promo_code
from tests.orders.priced_event import Sale, open_sale
from tests.orders.shop import Shop
from tests.support.running.suite import problem


async def put(sale: Sale, code: str, **rule: int) -> dict[str, object]:
    return await sale.put_code(quote(code, safe=""), **(rule or {"percent": 10}))


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
    made = await put(sale, code, percent=10)
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
    assert problem(refused) == (422, "promo-code-not-valid")


async def test_codes_that_differ_in_case_and_blanks_only_are_one(shop: Shop) -> None:
    sale = await open_sale(shop)
    await put(sale, "SUMMER 27", percent=10)
    again = await put(sale, " summer\u00a0 27", percent=10)
    assert (again["code"], again["changed"]) == ("SUMMER 27", False)
    other = await put(sale, "summer27", percent=20)
    assert (other["code"], other["changed"]) == ("SUMMER27", True)
    listed = (await sale.admin_request("GET", "/promo-codes")).json()["promo_codes"]
    assert [(one["code"], one["percent"]) for one in listed] == [("SUMMER27", "20")]


async def test_pages_of_codes_go_on_after_one_with_a_blank(shop: Shop) -> None:
    sale = await open_sale(shop)
    for code in ("A B", "A C", "Ä"):
        await put(sale, code)
    first = (await sale.admin_request("GET", "/promo-codes?page_size=2")).json()
    rest = (await sale.admin_request("GET", "/promo-codes?page_size=2&" + first["next"].partition("?")[2])).json()
    assert {one["code"] for one in first["promo_codes"] + rest["promo_codes"]} == {"A B", "A C", "Ä"}
    assert rest["next"] is None


async def test_codes_of_an_earlier_version_go_on_working(shop: Shop) -> None:
    sale = await open_sale(shop)
    await put(sale, "VIP_2027-X", percent=10)
    async with shop.app.state.deps.db.begin() as connection:
        await connection.execute(promo_code.update().values(written=None))
    for typed in ("VIP_2027-X", "vip_2027-x ", "vip_2027\u2011x"):
        assert (await sale.quote(await sale.hold(), typed)).json()["total_minor"] == 9000


async def test_what_is_no_code_is_refused_like_a_wrong_one(shop: Shop) -> None:
    sale = await open_sale(shop)
    for typed in ("***", "a/b", "x" * 150, "<b>", "日本"):
        answer = await sale.quote(await sale.hold(), typed)
        assert problem(answer) == (422, "promo-code-not-valid"), typed
        assert answer.json()["detail"] == "This promo code is not valid."


async def test_a_code_that_nobody_could_type_cannot_be_made(shop: Shop) -> None:
    sale = await open_sale(shop)
    for code in ("***", "a\\b", "x" * 65, "%20"):
        path = f"/promo-codes/{code if code == '%20' else quote(code, safe='')}"
        answer = await sale.admin_request("PUT", path, body={"percent": 10})
        assert problem(answer) == (422, "invalid-request"), code
        assert "letters, digits and signs" in answer.json()["detail"]
        assert not set("^[]{}$") & set(answer.json()["detail"])
