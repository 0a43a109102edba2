"""Operators sign in with a key or a link that works once; a session ends with its key. Every screen is one document,
and assets are immutable.
"""

import asyncio
import gzip
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import brotli
import httpx
import pytest

from features.console import api
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


SCRIPT = "say('the same once more');\n" * 100
POLICY = (
    "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
    "require-trusted-types-for 'script'"
)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(api, "PAGES", tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "app-1a2b.js").write_text(SCRIPT)
    (tmp_path / "licenses.txt").write_text("MIT")
    (tmp_path.parent / "secret.txt").write_text("no")
    return tmp_path


async def test_every_screen_is_the_same_document(console: Console, pages: Path) -> None:
    async with console.client(None) as client:
        for path in ("/console", "/console/", "/console/events/arena", "/console/wall/arena"):
            answer = await client.get(path)
            assert (answer.status_code, answer.text) == (200, "<!doctype html>"), path
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["cache-control"] == "no-cache"
            assert (await client.head(path)).status_code == 200
        for path in ("/console/events/", "/console/wall/a%20b", "/console/other", "/console/events/arena/more"):
            assert (await client.get(path)).status_code == 404, path


async def test_assets_are_compressed_for_who_can_read_that(console: Console, pages: Path) -> None:
    async with console.client(None) as client:
        for accepted, encoding, unpacked in (
            ("br, gzip", "br", brotli.decompress), ("gzip", "gzip", gzip.decompress), ("identity", None, bytes),
            ("", None, bytes),
        ):  # fmt: skip
            request = client.build_request("GET", "/console/assets/app-1a2b.js", headers={"accept-encoding": accepted})
            response = await client.send(request, stream=True)
            body = b"".join([chunk async for chunk in response.aiter_raw()])
            await response.aclose()
            assert (unpacked(body).decode(), response.headers.get("content-encoding")) == (SCRIPT, encoding)
            assert encoding is None or len(body) < len(SCRIPT) / 10
            assert response.headers["content-type"].startswith("text/javascript")
            assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert "accept-encoding" in response.headers["vary"].lower()
        assert (await client.get("/console/assets/licenses.txt")).text == "MIT"


async def test_nothing_outside_the_folder_is_sent(console: Console, pages: Path) -> None:
    async with console.client(None) as client:
        for name in ("..%2Fsecret.txt", "../secret.txt", "nothing.js", ".hidden.txt", "%00.js"):
            assert (await client.get(f"/console/assets/{name}")).status_code == 404, name


async def test_without_pages_the_rest_works(console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAGES", tmp_path)
    async with console.client() as client:
        assert (await client.get("/console/")).status_code == 404
        assert (await client.get("/console/api/events")).status_code == 200
        assert isinstance(await client.get("/console/session"), httpx.Response)
