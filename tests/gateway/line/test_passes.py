"""Claiming a pass, only after the call and always the same one; and leaving the line."""

import asyncio

import jwt
import pytest

from tests.gateway.frames import new_frame

PATH = "/events/show/queue"


@pytest.fixture
async def joined(fan, queue) -> None:
    """This fan is the first in the line."""
    await queue.open()
    assert (await fan.post(PATH)).status_code == 201


@pytest.mark.parametrize(("ahead", "requests"), [(119, 1), (120, 0)])
async def test_a_claim_long_before_the_call_is_refused_without_a_request(fan, queue, publish_frame, ahead, requests):
    await queue.open()
    await queue.join(*(f"other-{n}" for n in range(ahead)))
    await fan.get(PATH)
    await publish_frame(new_frame(rate_per_s=10.0))
    await fan.post(PATH)
    refused = await fan.post(f"{PATH}/pass")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-admitted")
    assert queue.calls["/claims"] == requests


async def test_a_fan_who_was_called_gets_the_pass_at_a_gateway_that_does_not_know_of_it_yet(fan, queue, joined):
    with queue.frames_are_lost():
        await queue.call()
    assert (await fan.post(f"{PATH}/pass")).status_code == 200


async def test_a_stale_frame_refuses_no_claim(fan, queue, joined, state):
    with queue.frames_are_lost():
        await queue.call()
    state.line_cache.cached("show").received_s -= 20
    assert (await fan.post(f"{PATH}/pass")).status_code == 200


async def test_a_called_fan_gets_the_same_pass_at_every_claim(fan, queue, joined, publish_frame):
    await publish_frame(await queue.call())
    answers = await asyncio.gather(*(fan.post(f"{PATH}/pass") for _ in range(5)))
    (body,) = {answer.content for answer in answers}
    body = answers[0].json()
    assert set(body) == {"pass", "expires_at", "checkout_key", "status"}
    assert body["status"] == "admitted"
    cookie, *flags = answers[0].headers["set-cookie"].split("; ")
    assert cookie == f"onsale_pass_show={body['pass']}"
    assert {"Path=/", "HttpOnly", "SameSite=Lax"} < set(flags)
    (max_age,) = (int(flag.removeprefix("Max-Age=")) for flag in flags if flag.startswith("Max-Age="))
    assert 800 < max_age <= 900
    assert queue.calls["/claims"] <= 3
    assert (await fan.get(f"{PATH}/status")).json()["status"] == "admitted"
    assert queue.calls["/status"] == 0, "the answer to the claim is cached"


async def test_a_pass_can_be_verified_with_the_published_keys(fan, queue, joined, publish_frame):
    await publish_frame(await queue.call())
    text = (await fan.post(f"{PATH}/pass")).json()["pass"]
    (key,) = (await fan.get("/.well-known/jwks.json")).json()["keys"]
    claims = jwt.decode(text, jwt.PyJWK(key), algorithms=["EdDSA"], audience="show", issuer="onsale")
    assert claims["seq"] == 1


async def test_an_ended_place_gets_no_pass(fan, queue, joined, publish_frame):
    await publish_frame(await queue.call())
    await queue.end(1, "expired")
    refused = await fan.post(f"{PATH}/pass")
    assert (refused.status_code, refused.json()["type"]) == (410, "/problems/place-expired")
    assert refused.json()["place"] == "expired"
    assert "set-cookie" not in refused.headers
    assert (await fan.get(f"{PATH}/status")).json()["status"] == "expired"


async def test_leaving_ends_the_place_and_deletes_its_cookies(fan, queue, joined):
    left = await fan.delete(PATH)
    assert (left.status_code, left.content) == (204, b"")
    cleared = left.headers.get_list("set-cookie")
    assert [cookie.split(";")[0] for cookie in cleared] == ["onsale_queue_show=", "onsale_pass_show="]
    assert all("Max-Age=0" in cookie for cookie in cleared)
    assert await queue.ended() == {1: "left"}
    assert (await fan.delete(PATH)).status_code == 401, "the cookies are deleted"


async def test_leaving_a_line_after_its_reset_ends_no_place(fan, queue, joined):
    await queue.reset()
    assert (await fan.delete(PATH)).status_code == 204
    assert not await queue.ended()
