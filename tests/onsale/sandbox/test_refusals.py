"""What the sandbox refuses: played outages, values out of bounds, calls that make no sense."""

from typing import Any

import pytest

from onsale.sandbox.schemas import looks_like_card_number
from tests.onsale.sandbox_fan import Fan, error_code


async def test_an_outage_and_a_rate_limit_refuse_everything_and_end(fan: Fan) -> None:
    await fan.http.post("/control", json={"down_for_s": 60})
    away = await fan.charge()
    assert (away.status_code, error_code(away)) == (503, "unavailable")
    assert 0 < int(away.headers["Retry-After"]) <= 60
    assert (await fan.http.get("/healthz")).status_code == 200
    await fan.http.post("/control", json={"down_for_s": 0, "rate_limit_per_s": 2})
    answers = [await fan.charge(key=str(number)) for number in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) >= 1
    await fan.http.post("/control", json={"rate_limit_per_s": 0})
    assert len(await fan.books()) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_minor": 0},
        {"amount_minor": "9350"},
        {"amount_minor": 10**13},
        {"currency": "eur"},
        {"method": "gold"},
        {"reference": ""},
        {"reference": "a\u0000b"},
        {"return_url": "javascript:alert(1)"},
        {"metadata": {"late_after_s": -1}},
        {"metadata": {"late_after_s": "soon"}},
        {"metadata": {str(number): 1 for number in range(21)}},
        {"surprise": 1},
        {"token": "4242424242424242"},
        {"token": "4000 0566 5566 5556"},
        {"token": "card:4000-0566-5566-5556"},
    ],
    ids=str,
)
async def test_a_charge_out_of_bounds_is_refused_without_an_echo_and_books_nothing(
    fan: Fan, changes: dict[str, Any]
) -> None:
    refused = await fan.charge(**changes)
    assert refused.status_code == 422
    for value in changes.values():
        assert len(str(value)) < 5 or str(value) not in refused.text
    assert await fan.books() == []


def test_tokens_with_digits_are_not_mistaken_for_cards() -> None:
    for token in ("tok_visa", "tok_1234567890", "0f8fad5b-d9cb-469f-a165-70867728950e", "tok_4242424242424241"):
        assert not looks_like_card_number(token)


async def test_calls_that_make_no_sense_are_refused(fan: Fan) -> None:
    assert (await fan.http.post("/charges", json={})).status_code == 400
    assert (await fan.charge(key="k" * 256)).status_code == 400
    headers = {"Idempotency-Key": "k"}
    assert (await fan.http.post("/charges", content=b"{", headers=headers)).status_code == 422
    assert (await fan.http.post("/charges", content=b" " * 65_537, headers=headers)).status_code == 413
    for path in ("/charges/ch_none", "/nothing", "/charges?since=ch_none"):
        answer = await fan.http.get(path)
        assert (answer.status_code, "code" in answer.json()["error"]) == (404, True)
    for asked in ("limit=0", "limit=x", "limit=-1", "since=yesterday"):
        assert (await fan.http.get(f"/charges?{asked}")).status_code == 422
    assert (await fan.http.delete("/charges")).status_code == 405
    assert (await fan.http.post("/control", json={"explode": True})).status_code == 422
