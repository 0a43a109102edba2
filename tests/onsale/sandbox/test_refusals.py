"""The sandbox refuses requests during a simulated outage or rate limit, values out of bounds and invalid calls."""

from typing import Any

import pytest

from onsale.sandbox.schemas import looks_like_card_number
from tests.onsale.sandbox_client import SandboxClient, error_code


async def test_an_outage_and_a_rate_limit_refuse_charges_until_they_end(client: SandboxClient) -> None:
    await client.http.post("/control", json={"down_for_s": 60})
    during_outage = await client.charge()
    assert (during_outage.status_code, error_code(during_outage)) == (503, "unavailable")
    assert 0 < int(during_outage.headers["Retry-After"]) <= 60
    assert (await client.http.get("/healthz")).status_code == 200
    await client.http.post("/control", json={"down_for_s": 0, "rate_limit_per_s": 2})
    answers = [await client.charge(key=str(number)) for number in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) >= 1
    await client.http.post("/control", json={"rate_limit_per_s": 0})
    assert len(await client.list_charges()) == 2


INVALID: dict[str, list[Any]] = {
    "amount_minor": [0, "9350", 10**13],
    "currency": ["eur", "EUE", "XXX"],
    "method": ["gold"],
    "reference": ["", "a\u0000b"],
    "return_url": ["javascript:alert(1)"],
    "metadata": [{"late_after_s": -1}, {"late_after_s": "soon"}, {str(number): 1 for number in range(21)}],
    "surprise": [1],
    "token": ["4242424242424242", "4000 0566 5566 5556", "card:4000-0566-5566-5556"],
}


@pytest.mark.parametrize("field", INVALID)
async def test_an_invalid_charge_is_refused_without_repeating_its_values_and_charges_nothing(
    client: SandboxClient, field: str
) -> None:
    for value in INVALID[field]:
        refused = await client.charge(**{field: value})
        assert refused.status_code == 422, value
        assert len(str(value)) < 5 or str(value) not in refused.text
    assert await client.list_charges() == []


def test_tokens_with_digits_are_not_mistaken_for_card_numbers() -> None:
    for token in ("tok_visa", "tok_1234567890", "0f8fad5b-d9cb-469f-a165-70867728950e", "tok_4242424242424241"):
        assert not looks_like_card_number(token)


async def test_invalid_calls_are_refused(client: SandboxClient) -> None:
    assert (await client.http.post("/charges", json={})).status_code == 400
    assert (await client.charge(key="k" * 256)).status_code == 400
    headers = {"Idempotency-Key": "k"}
    assert (await client.http.post("/charges", content=b"{", headers=headers)).status_code == 422
    assert (await client.http.post("/charges", content=b" " * 65_537, headers=headers)).status_code == 413
    for path in ("/charges/ch_none", "/nothing", "/charges?since=ch_none"):
        answer = await client.http.get(path)
        assert (answer.status_code, "code" in answer.json()["error"]) == (404, True)
    for query in ("limit=0", "limit=x", "limit=-1", "since=yesterday"):
        assert (await client.http.get(f"/charges?{query}")).status_code == 422
    assert (await client.http.delete("/charges")).status_code == 405
    assert (await client.http.post("/control", json={"explode": True})).status_code == 422
