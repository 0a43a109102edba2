"""Cookies of fans: their attributes, and no use of them by other sites."""

from typing import Any

import pytest

from services.gateway.protection.identity import TokenReader
from services.gateway.settings import Settings
from shared.contracts.queue import HeartbeatReport
from shared.errors.problems import BadCredential
from shared.security.tokens import Keyring
from tests.gateway.conftest import gateway_client
from tests.gateway.tokens import queue_token

PATH = "/events/show/queue"


async def test_another_site_cannot_act_for_a_fan(fan, queue, publish_frame):
    await queue.open()
    await fan.post(PATH)
    await publish_frame(await queue.call())
    for origin in ("http://evil.example", "null", "http://gateway.evil.example"):
        for method, path in (("POST", PATH), ("POST", f"{PATH}/pass"), ("DELETE", PATH)):
            refused = await fan.request(method, path, headers={"origin": origin})
            assert (refused.status_code, refused.json()["type"]) == (403, "/problems/foreign-origin")
    del fan.headers["origin"]
    assert (await fan.delete(PATH)).json()["type"] == "/problems/foreign-origin"
    assert (await fan.get(f"{PATH}/status")).status_code == 200, "a request that changes nothing is allowed"
    assert not await queue.ended()


async def test_another_site_cannot_trade_a_place_for_a_new_one(browser, queue):
    await queue.open()
    fan = browser(origin="http://evil.example")
    refused = await fan.post(PATH)  # without a cookie, as a browser sends a post from another site
    assert refused.json()["type"] == "/problems/foreign-origin"
    assert not queue.calls["/joins"]


async def test_a_page_over_plain_http_cannot_act_with_the_cookies_of_https(queue, settings):
    await queue.open()
    secure = settings.model_copy(update={"secure_cookies": True})
    async with gateway_client(secure, base_url="https://gateway") as fan:
        assert (await fan.post(PATH)).status_code == 201
        for method, path in (
            ("POST", PATH),
            ("POST", f"{PATH}/pass"),
            ("POST", f"{PATH}/pass/extend"),
            ("DELETE", PATH),
        ):
            refused = await fan.request(method, path, headers={"origin": "http://gateway"})
            assert refused.json()["type"] == "/problems/foreign-origin", path
        assert not await queue.ended()
        assert (await fan.delete(PATH, headers={"origin": "https://gateway"})).status_code == 204


async def test_a_fan_with_an_invalid_cookie_can_join(fan, queue):
    await queue.open()
    fan.cookies.set("onsale_queue_show", "from.an.older-key")
    assert (await fan.get(f"{PATH}/status")).status_code == 401
    assert (await fan.post(PATH)).status_code == 201


async def test_cookies_are_secure_where_the_operator_says_so(queue, settings):
    await queue.open()
    secure = settings.model_copy(update={"secure_cookies": True})
    async with gateway_client(secure, base_url="https://gateway") as fan:
        first = await fan.post(PATH)
        name, *flags = first.headers["set-cookie"].split("; ")
        assert name == f"__Host-onsale_queue_show={first.json()['queue_token']}"
        assert {"Secure", "Path=/"} <= set(flags), "browsers accept a __Host- cookie only with these"
        assert not any(flag.startswith("Domain") for flag in flags)
        assert (await fan.get(f"{PATH}/status")).status_code == 200
        assert (await fan.get("/e/show")).headers["set-cookie"].startswith("__Host-onsale_browser=")
        fan.cookies.clear()
        planted = {"cookie": f"onsale_queue_show={first.json()['queue_token']}"}
        assert (await fan.get(f"{PATH}/status", headers=planted)).status_code == 401, (
            "as another host of the domain could set it"
        )
    assert queue.received("/heartbeats", HeartbeatReport)[-1].final


# -- tokens of a removed key -------------------------------------------------------------------------------------------


def test_a_cached_token_of_a_removed_key_is_refused() -> None:
    users: Any = None
    settings, text = Settings(), queue_token()
    reader = TokenReader(settings, users)
    assert reader.read(text, "show").holder == "holder"
    settings.queue_token_keys.replace(Keyring({"new": bytes(range(32))}))
    with pytest.raises(BadCredential):
        reader.read(text, "show")
