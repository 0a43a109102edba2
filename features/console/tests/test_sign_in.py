"""Operators sign in with a key or a link that works once; a session ends with its key."""

import asyncio
from http.cookies import SimpleCookie
from typing import Any

import httpx

from features.console.tests.conftest import ADMIN_KEYS, KEYS, LINK, Console, Start
from shared.security.auth import AdminKeys
from tests.support.running.suite import problem

PATH = "/console/session"


async def sign_in(client: httpx.AsyncClient, **how: str) -> httpx.Response:
    return await client.post(PATH, json=how)


async def test_a_key_signs_in_with_a_cookie_that_no_script_reads(console: Console) -> None:
    async with console.client(None) as client:
        answer = await sign_in(client, key=KEYS["operator"])
        assert (answer.status_code, answer.json()["name"], answer.json()["role"]) == (200, "operator-1", "operator")
        cookie = SimpleCookie(answer.headers["set-cookie"])["onsale_operator"]
        assert cookie["httponly"]
        assert (cookie["samesite"], cookie["path"], cookie["max-age"], cookie["secure"]) == ("Strict", "/", "28800", "")
        assert KEYS["operator"] not in answer.headers["set-cookie"]
        assert (await client.get(PATH)).json() == answer.json()


async def test_elsewhere_than_on_this_machine_the_cookie_is_bound_to_the_host_and_https(console: Console) -> None:
    async with console.client(None) as client:
        headers = {"host": "console.example"}
        answer = await client.post(PATH, json={"key": KEYS["viewer"]}, headers=headers)
        text = answer.headers["set-cookie"]
        assert text.startswith("__Host-onsale_operator=")
        assert "; Secure" in text
        assert "domain" not in text.lower()
        value = text.partition("=")[2].partition(";")[0]
        for name, status in (("__Host-onsale_operator", 200), ("onsale_operator", 401)):
            sent = {**headers, "cookie": f"{name}={value}"}
            assert (await client.get(PATH, headers=sent)).status_code == status, "a cookie of another host is none"


async def test_wrong_keys_of_an_address_are_limited_and_the_right_one_is_never_refused(start: Start) -> None:
    async with start() as console, console.client(None) as client:

        async def attempt(address: str, key: str) -> httpx.Response:
            return await client.post(PATH, json={"key": key}, headers={"x-forwarded-for": address})

        for _ in range(5):
            assert problem(await attempt("203.0.113.7", "wrong" * 5)) == (401, "bad-credential")
        limited = await attempt("203.0.113.7", "wrong" * 5)
        assert problem(limited) == (429, "too-many-wrong-codes")
        assert 1 <= int(limited.headers["retry-after"]) <= 12
        assert (await attempt("203.0.113.7", KEYS["admin"])).status_code == 200, "a colleague behind the same address"
        assert (await attempt("203.0.113.8", KEYS["admin"])).status_code == 200, "another address is not concerned"


async def test_a_link_signs_the_first_admin_in_once(start: Start) -> None:
    async with start() as one, start() as other, one.client(None) as client, other.client(None) as second:
        answers = await asyncio.gather(*(sign_in(each, link=LINK) for each in (client, second, client)))
        assert sorted(answer.status_code for answer in answers) == [200, 401, 401]
        [signed_in] = [answer for answer in answers if answer.status_code == 200]
        assert (signed_in.json()["name"], signed_in.json()["role"]) == ("admin-1", "admin")
        assert (await sign_in(client, link="another" * 5)).status_code == 401
        assert (await client.post(PATH, json={})).status_code == 422
        assert (await sign_in(client, key=KEYS["admin"], link=LINK)).status_code == 422


async def test_a_used_link_does_not_work_again_after_redis_is_lost(start: Start, redis: Any) -> None:
    async with start() as one, start() as other, one.client(None) as client, other.client(None) as second:
        assert (await sign_in(client, link=LINK)).status_code == 200
        await redis.flushall()
        for browser in (client, second):
            assert problem(await sign_in(browser, link=LINK)) == (401, "bad-credential")


async def test_without_a_secret_there_is_no_link(start: Start) -> None:
    async with start(link_secret=None) as console, console.client(None) as client:
        assert (await sign_in(client, link=LINK)).status_code == 401


async def test_a_session_ends_when_its_key_is_rotated_or_its_role_changed(console: Console) -> None:
    async with console.client(None) as client:
        await sign_in(client, key=KEYS["operator"])
        for text in (
            ADMIN_KEYS.replace(KEYS["operator"], "another-key-of-the-operator"),
            ADMIN_KEYS.replace("operator-1:operator", "operator-1:viewer"),
            ADMIN_KEYS.replace("operator-1:", "someone-else:"),
        ):
            console.app.state.admin_keys = AdminKeys(text)
            assert problem(await client.get(PATH)) == (401, "bad-credential")
        console.app.state.admin_keys = AdminKeys(ADMIN_KEYS)
        assert (await client.get(PATH)).status_code == 200


async def test_signing_out_takes_our_own_origin(console: Console) -> None:
    async with console.client(None) as client:
        await sign_in(client, key=KEYS["viewer"])
        foreign = await client.delete(PATH, headers={"origin": "https://evil.example"})
        assert problem(foreign) == (403, "foreign-origin")
        other_site = await client.post(PATH, json={"key": KEYS["viewer"]}, headers={"origin": "https://evil.example"})
        assert problem(other_site) == (403, "foreign-origin")
        assert (await client.delete(PATH, headers={"origin": console.url})).status_code == 204
        assert (await client.get(PATH)).status_code == 401
