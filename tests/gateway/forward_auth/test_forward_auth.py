"""Claiming a pass: not before the call, and the same one at every claim; leaving; credentials and origins."""

import asyncio
import time

import httpx
import jwt
import pytest

from services.gateway.app import create_app
from services.gateway.settings import Settings
from shared.contracts.queue import HeartbeatReport, PlacesQuestion
from shared.runtime.settings import development_keys
from shared.security.tokens import Pass, sign_pass
from shared.web.app import public
from tests.support.wait import wait_until

PATH = "/events/show/queue"


async def test_a_pass_before_the_call_is_refused_from_the_frame(fan, queue, show):
    room = queue.open()
    await fan.post(PATH)
    await show(room.frame())
    refused = await fan.post(f"{PATH}/pass")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-admitted")
    assert queue.calls["/claims"] == 0


async def test_an_old_frame_refuses_nobody(fan, queue, show, state):
    line_room = queue.open()
    await fan.post(PATH)
    await show(line_room.frame())
    line_room.head_seq = 1
    state.line_cache.cached("show").received_s -= 20
    assert (await fan.post(f"{PATH}/pass")).status_code == 200


async def test_a_called_fan_gets_the_same_pass_at_every_claim(fan, queue, show):
    room = queue.open()
    await fan.post(PATH)
    await show(room.change(head_seq=1))
    answers = await asyncio.gather(*(fan.post(f"{PATH}/pass") for _ in range(5)))
    (body,) = {answer.content for answer in answers}
    body = answers[0].json()
    assert set(body) == {"pass", "expires_at", "checkout_key", "status"}
    assert body["status"] == "admitted"
    cookie, *flags = answers[0].headers["set-cookie"].split("; ")
    assert cookie == f"onsale_pass_show={body['pass']}"
    assert {"Path=/", "HttpOnly", "SameSite=Lax"} < set(flags)
    (max_age,) = (int(flag.removeprefix("Max-Age=")) for flag in flags if flag.startswith("Max-Age="))
    assert 500 < max_age <= 600
    assert queue.calls["/claims"] <= 3


async def test_any_origin_can_verify_a_pass_with_our_keys(fan, queue, show):
    room = queue.open()
    await fan.post(PATH)
    await show(room.change(head_seq=1))
    text = (await fan.post(f"{PATH}/pass")).json()["pass"]
    (key,) = (await fan.get("/.well-known/jwks.json")).json()["keys"]
    claims = jwt.decode(text, jwt.PyJWK(key), algorithms=["EdDSA"], audience="show", issuer="onsale")
    assert claims["seq"] == 1


async def test_an_ended_place_gets_no_pass(fan, queue, show):
    room = queue.open()
    await fan.post(PATH)
    room.ended[1] = "expired"
    await show(room.change(head_seq=1))
    refused = await fan.post(f"{PATH}/pass")
    assert (refused.status_code, refused.json()["type"]) == (410, "/problems/place-expired")
    assert refused.json()["place"] == "expired"
    assert "set-cookie" not in refused.headers
    assert (await fan.get(f"{PATH}/status")).json()["status"] == "expired"


async def test_leaving_gives_up_the_place_and_its_cookies(fan, queue):
    room = queue.open()
    await fan.post(PATH)
    left = await fan.delete(PATH)
    assert (left.status_code, left.content) == (204, b"")
    cleared = left.headers.get_list("set-cookie")
    assert [cookie.split(";")[0] for cookie in cleared] == ["onsale_queue_show=", "onsale_pass_show="]
    assert all("Max-Age=0" in cookie for cookie in cleared)
    assert room.ended == {1: "left"}
    assert (await fan.delete(PATH)).status_code == 401, "the browser has forgotten its place"


async def test_leaving_a_line_that_was_reset_is_leaving(fan, queue):
    room = queue.open()
    await fan.post(PATH)
    room.change(epoch=2)
    assert (await fan.delete(PATH)).status_code == 204
    assert not room.ended


async def test_another_site_cannot_act_for_a_fan(fan, queue, show):
    room = queue.open()
    await fan.post(PATH)
    await show(room.change(head_seq=1))
    for origin in ("http://evil.example", "null", "http://gateway.evil.example"):
        for method, path in (("POST", PATH), ("POST", f"{PATH}/pass"), ("DELETE", PATH)):
            refused = await fan.request(method, path, headers={"origin": origin})
            assert (refused.status_code, refused.json()["type"]) == (403, "/problems/foreign-origin")
    del fan.headers["origin"]
    assert (await fan.delete(PATH)).json()["type"] == "/problems/foreign-origin"
    assert (await fan.get(f"{PATH}/status")).status_code == 200, "reading is free"
    assert not room.ended


async def test_another_site_cannot_trade_a_place_for_a_new_one(browser, queue):
    queue.open()
    fan = browser(origin="http://evil.example")
    refused = await fan.post(PATH)  # the browser kept the cookie back, as it is a stranger's post
    assert refused.json()["type"] == "/problems/foreign-origin"
    assert not queue.rooms["show"].holders


async def test_a_dead_cookie_does_not_lock_a_fan_out(fan, queue):
    queue.open()
    fan.cookies.set("onsale_queue_show", "from.an.older-key")
    assert (await fan.get(f"{PATH}/status")).status_code == 401
    assert (await fan.post(PATH)).status_code == 201


async def test_cookies_are_secure_where_the_operator_says_so(queue, redis_url):
    queue.open()
    app = create_app(Settings(queue_url=queue.url, redis_url=redis_url, secure_cookies=True))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://gateway") as fan,
    ):
        first = await fan.post(PATH)
        name, *flags = first.headers["set-cookie"].split("; ")
        assert name == f"__Host-onsale_queue_show={first.json()['queue_token']}"
        assert {"Secure", "Path=/"} <= set(flags), "or no browser takes a __Host- cookie"
        assert not any(flag.startswith("Domain") for flag in flags)
        assert (await fan.get(f"{PATH}/status")).status_code == 200
        assert (await fan.get("/e/show")).headers["set-cookie"].startswith("__Host-onsale_browser=")
        fan.cookies.clear()
        planted = {"cookie": f"onsale_queue_show={first.json()['queue_token']}"}
        assert (await fan.get(f"{PATH}/status", headers=planted)).status_code == 401, "by another host of the domain"
    assert queue.received(HeartbeatReport)[-1].final


async def test_overload_is_refused_at_once(queue, redis_url):
    queue.open()
    app = create_app(Settings(queue_url=queue.url, redis_url=redis_url, joins_waiting_max=3))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://gateway") as fan,
    ):
        await fan.get(PATH)
        queue.may_answer.clear()
        held = asyncio.create_task(fan.post(PATH))
        await wait_until(lambda: queue.calls["/joins"] == 1)
        crowd = [asyncio.create_task(fan.post(PATH)) for _ in range(4)]
        (refused,), waiting = await asyncio.wait(crowd, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().json()["type"] == "/problems/overloaded"
        assert refused.result().headers["retry-after"] == "1"
        queue.may_answer.set()
        assert {answer.status_code for answer in await asyncio.gather(held, *waiting)} == {201}


def admission(**changes) -> str:
    now_s = int(time.time())
    facts = {"event_id": "show", "holder": "holder", "jti": "1-0-1-1", "epoch": 1, "lane": 0, "join_seq": 1,
             "qty_max": 6, "issued_at_s": now_s, "expires_at_s": now_s + 60, **changes}  # fmt: skip
    return sign_pass(
        development_keys(changes.get("keys", "pass")), Pass(**{k: v for k, v in facts.items() if k != "keys"})
    )


@pytest.mark.parametrize("proxy", ["nginx", "traefik", "caddy", "envoy"])
async def test_forward_auth_admits_a_pass(fan, queue, proxy):
    queue.open()
    check = f"/gate/{proxy}/check?event=show"
    by_bearer = await fan.get(check, headers={"authorization": f"Bearer {admission()}"})
    by_cookie = await fan.get(check, headers={"cookie": f"onsale_pass_show={admission()}"})
    for answer in (by_bearer, by_cookie):
        assert (answer.status_code, answer.headers["x-onsale-holder"]) == (200, "holder")
        assert answer.headers["cache-control"] == "no-store"


async def test_forward_auth_refuses_everything_else(fan, queue, show):
    check = "/gate/nginx/check?event=show"
    queue.open()
    assert (await fan.get(check)).status_code == 401
    for text, status in (
        (admission(event_id="other"), 403),
        (admission(expires_at_s=int(time.time()) - 60), 401),
        (admission(keys="another"), 401),
        ("nonsense", 401),
    ):
        answer = await fan.get(check, headers={"authorization": f"Bearer {text}"})
        assert answer.status_code == status
        assert "x-onsale-holder" not in answer.headers
    assert (await fan.get("/gate/apache/check?event=show")).status_code == 422
    await show(queue.open(epoch=2, version=2).frame())
    before_reset = await fan.get(check, headers={"authorization": f"Bearer {admission()}"})
    assert before_reset.status_code == 401
    assert queue.received(PlacesQuestion) == []


async def test_fan_pages_come_with_a_strict_policy(fan, queue):
    queue.open()
    for path, kind in (
        ("/", "text/html"),
        ("/e/show", "text/html"),
        ("/o/ABCDEFGH12", "text/html"),
        ("/static/styles.css", "text/css"),
        ("/favicon.ico", "image/svg+xml"),
    ):
        page = await fan.get(path)
        assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, kind)
        policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        assert page.headers["content-security-policy"] == policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        again = await fan.get(path, headers={"if-none-match": page.headers["etag"]})
        assert (again.status_code, path) == (304, path)
    for path in ("/static/nothing.js", "/static/../app.py", "/static/%2e%2e/%2e%2e/app.py", "/e/-bad-"):
        refused = await fan.get(path)
        assert refused.status_code in {404, 422}
        assert refused.headers["content-type"] == "application/problem+json"


async def test_hot_paths_are_documented(fan):
    document = (await fan.get("/openapi.json")).json()
    assert set(document["paths"][PATH.replace("show", "{event_id}")]) == {"parameters", "get", "post", "delete"}
    assert "/events/{event_id}/queue/status" in document["paths"]
    assert set(document["components"]["schemas"]["PassAnswer"]["properties"]) == {
        "pass",
        "expires_at",
        "checkout_key",
        "status",
    }
