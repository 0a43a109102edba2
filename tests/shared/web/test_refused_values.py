"""What is said of a value that is refused: a sentence of what is allowed, never a pattern."""

import re
from typing import Annotated, Any

import pytest
from fastapi import Query, Request
from pydantic import BaseModel, StringConstraints, create_model

from shared.contracts.fields import WANTED, Body, Email, PlainText, refusal
from shared.errors.problems import InvalidRequest
from shared.web.request import parse_model
from tests.support.bare_service import bare_service, fan_of_service

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
