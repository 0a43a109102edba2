"""What a person types or pastes is read as it was meant.

What is said of a value that is refused: a sentence of what is allowed, never a pattern.
"""

import re
import sys
import unicodedata
from typing import Annotated, Any

import pytest
from fastapi import Query, Request
from pydantic import BaseModel, StringConstraints, ValidationError, create_model

from services.gateway.api.schemas import JoinBody
from services.orders.checkout.requests import CustomerDetails, QuoteRequest
from shared.contracts.fields import WANTED, Body, Email, PlainText, code_as_shown, code_key, refusal, tidy
from shared.errors.problems import InvalidRequest
from shared.web.request import parse_model
from tests.support.bare_service import bare_service, fan_of_service


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("  Ada  ", "Ada"),
        ("Ada\u00a0Lovelace\r\n", "Ada Lovelace"),
        ("\ufeffAda\u200b \u2028Lovelace\u202e", "Ada Lovelace"),
        ("Zoe\u0308", "Zo\u00eb"),
        ("\u200b\x00\t", ""),
    ],
)
def test_a_text_is_tidied(typed: str, meant: str) -> None:
    assert tidy(typed) == meant


@pytest.mark.parametrize(
    ("typed", "shown", "key"),
    [
        ("early", "EARLY", "EARLY"),
        (" Summer\u00a0\n27 ", "SUMMER 27", "SUMMER27"),
        ("fru\u0308hbucher", "FRÜHBUCHER", "FRÜHBUCHER"),
        ("Straße", "STRASSE", "STRASSE"),
        ("\uff33\uff35\uff2d\uff2d\uff25\uff32\uff12\uff17", "SUMMER27", "SUMMER27"),
        ("VIP\u20112027", "VIP-2027", "VIP-2027"),
        ("VIP\u20132027", "VIP-2027", "VIP-2027"),
    ],
)
def test_a_code_has_one_form(typed: str, shown: str, key: str) -> None:
    assert (code_as_shown(typed), code_key(typed)) == (shown, key)


def test_the_form_of_a_code_is_final() -> None:
    """For every character: codes are looked up by what was read of them before."""
    letters = (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)
    changed = (one for one in letters if {unicodedata.normalize("NFKC", one), one.upper(), one.casefold()} != {one})
    for letter in changed:
        once = code_key(f"A{letter}B")
        assert code_key(once) == once == code_key(code_as_shown(letter.join("AB"))), hex(ord(letter))


def test_codes_of_earlier_versions_are_their_own_keys() -> None:
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-"
    assert code_key(plain) == code_key(plain.lower()) == plain


def test_a_request_takes_a_code_as_it_was_pasted() -> None:
    pasted = "\u00a0early\u200b\n"
    assert QuoteRequest(reservation_id="r", promo_code=pasted).promo_code == "early"
    assert JoinBody(code=pasted).code == "early"
    assert QuoteRequest(reservation_id="r", promo_code=" \n").promo_code is None
    assert JoinBody(code="").code is None


def test_addresses_and_numbers_are_taken_as_they_were_pasted() -> None:
    customer = CustomerDetails(name="Ada", email=" ada@example.org\u00a0\n", phone="+49\u00a030 1\n")
    assert (customer.email, customer.phone) == ("ada@example.org", "+49 30 1")
    assert CustomerDetails(name="Ada", email="a@b.de", phone="030  12").phone == "030  12", "as it was typed"
    with pytest.raises(ValidationError):
        CustomerDetails(name="Ada", email="ada @example.org")


WRONG = ("\x00", " ", "é", "?")
PYDANTICS = re.compile(r"Input should|String should|Value error|Field required|Extra inputs|match pattern")


@pytest.mark.parametrize("pattern", WANTED)
async def test_a_refused_value_is_told_what_is_allowed_and_not_the_pattern(pattern: str) -> None:
    """In the body and the query of an endpoint, and in a hot path's body. `tests/contracts` finds every pattern."""
    field = Annotated[str, StringConstraints(pattern=pattern)]
    model: type[BaseModel] = create_model("Sent", value=(field, ...))
    app = bare_service()

    async def body(sent: model) -> None:
        pass

    async def query(value: Annotated[str, Query(pattern=pattern)]) -> None:
        pass

    async def hot(request: Request) -> None:
        parse_model(await request.body(), model)

    for name, endpoint in (("body", body), ("query", query), ("hot", hot)):
        app.post(f"/{name}")(endpoint)
    [wrong, *_] = [value for value in WRONG if not re.search(pattern, value)]
    async with fan_of_service(app) as client:
        answers = [
            await client.post("/body", json={"value": wrong}), await client.post("/query", params={"value": wrong}),
            await client.post("/hot", json={"value": wrong}),
        ]  # fmt: skip
    for answer in answers:
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (422, "/problems/invalid-request")
        assert problem["detail"] == f"value: This must be {WANTED[pattern]}."
        assert problem["errors"] == [{"field": "value", "message": f"This must be {WANTED[pattern]}."}]
        assert pattern.strip("^$") not in answer.text
        assert not PYDANTICS.search(answer.text)


class Order(Body):
    """Fields of the kinds that people fill in."""

    name: PlainText
    email: Email
    quantity: Annotated[int, Query(ge=1, le=9)] = 1


@pytest.mark.parametrize(("sent", "said"), [
    ({}, "name: This is missing. email: This is missing."),
    ({"name": "", "email": "a@b.example"}, "name: This must have at least 1 character."),
    ({"name": "Ada" * 99, "email": "a@b.example"}, "name: This must have at most 200 characters."),
    ({"name": "Ada", "email": "ada"}, "email: This must be an e-mail address such as ada@example.org."),
    ({"name": 7, "email": "a@b.example"}, "name: This must be text."),
    ({"name": "Ada", "email": "a@b.example", "quantity": "two"}, "quantity: This must be a whole number."),
    ({"name": "Ada", "email": "a@b.example", "quantity": 10}, "quantity: This must be less than or equal to 9."),
    ({"name": "Ada", "email": "a@b.example", "mail": 1}, "mail: There is no such field."),
])  # fmt: skip
async def test_a_person_reads_sentences_about_what_they_typed(sent: dict[str, Any], said: str) -> None:
    app = bare_service()

    @app.post("/orders")
    async def order(sent: Order) -> None:
        pass

    async with fan_of_service(app) as client:
        assert (await client.post("/orders", json=sent)).json()["detail"] == said


def test_a_pattern_without_words_is_not_shown_either() -> None:
    said = refusal(
        {"type": "string_pattern_mismatch", "msg": "String should match pattern '^x+$'", "ctx": {"pattern": "^x+$"}}
    )
    assert said == "This does not have the form it must have."
    assert InvalidRequest.title().endswith(".")
