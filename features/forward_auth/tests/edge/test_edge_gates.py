"""The gates for Cloudflare Workers and Fastly Compute, run by their published contracts, with a running gateway."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from features.forward_auth.tests.edge.npm_packages import installed
from shared.security.tokens import development_keys
from shared.web.app import public
from tests.gateway.tokens import signed_pass
from tests.support.programs import need, needs
from tests.support.providers.shop import ALLOWED_PATHS, SCRIPT, TRICKY_PATHS, browser, get_as_written, shop
from tests.support.running.serving import serving
from tests.support.running.suite import bearer

ROOT = Path(__file__).parents[4]
EDGE = ROOT / "deploy" / "edge"
HOST, MINIFLARE_HOST = (Path(__file__).with_name(name) for name in ("host.mjs", "miniflare_host.mjs"))
WORKERD = "cloudflare-worker.js in workerd"
CLOUDFLARE, FASTLY = "cloudflare-worker.js", "fastly-compute.js"
pytestmark = needs("node")


def proof_of(program: str) -> Any:
    return pytest.param(program, marks=pytest.mark.proof)


EACH = pytest.mark.parametrize("program", [CLOUDFLARE, FASTLY, proof_of(WORKERD)])
ONE = pytest.mark.parametrize(
    "program", [CLOUDFLARE, proof_of(FASTLY), proof_of(WORKERD)]
)  # what both have from gate.js


@asynccontextmanager
async def gate(program: str, gateway: str, origin: str, **variables: str) -> AsyncIterator[str]:
    """The address of the program under its host, in front of the shop at `origin`."""
    given = {
        "ONSALE_EVENT": "show",
        "ONSALE_WAITING_ROOM": gateway,
        "ONSALE_LET_THROUGH": "/assets/*, /up",
        **variables,
    }
    settings = json.dumps({"variables": given, "shop": origin, "gateway": gateway})
    arguments = [str(HOST), str(EDGE / program), settings]
    if program == WORKERD:
        arguments = [str(shutil.copy(MINIFLARE_HOST, await asyncio.to_thread(installed))), str(EDGE), settings]
    process = await asyncio.create_subprocess_exec(
        need("node"), *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 10)


@pytest.fixture
async def site(program, app, queue) -> AsyncIterator[str]:
    """The shop's address at the edge; the room's rules allow a return to it."""
    async with serving(public(app)) as gateway, serving(shop()) as origin:
        url = f"http://127.0.0.1:{gateway}"
        async with gate(program, url, f"http://127.0.0.1:{origin}", ONSALE_SITES="http://shop.example") as address:
            await queue.open(gate={"waiting_room": url, "return_to": ["http://shop.example"]})
            yield address


def visitor() -> httpx.AsyncClient:
    return browser(host="shop.example")


def fragment_of(location: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(location).fragment).items()}


async def return_link(fan: httpx.AsyncClient, site: str, page: str) -> str:
    """Does what browser and fan page do: redirect to the waiting room, pass, handover; the link back, at `site`."""
    sent = await fan.get(site + page)
    room = urlsplit(sent.headers["location"])
    assert (sent.status_code, room.path, room.query) == (303, "/e/show", "")
    back = fragment_of(sent.headers["location"])
    assert back["return_to"] == f"http://shop.example{page}"
    url = f"{room.scheme}://{room.netloc}/events/show/queue/handover"
    link = await fan.post(url, json=back, headers={**bearer(signed_pass()), "host": room.netloc})
    assert link.status_code == 201, link.text
    return str(link.json()["location"]).replace("http://shop.example", site)


@EACH
async def test_a_fan_is_sent_to_the_room_and_returns_to_the_page(site):
    async with visitor() as fan:
        back = await return_link(fan, site, "/tickets/7?colour=red")
        arrival = await fan.get(back)
        assert (arrival.status_code, arrival.headers["location"]) == (303, "/tickets/7?colour=red")
        cookie = arrival.headers["set-cookie"]
        assert cookie.startswith("onsale_pass_show=")
        assert "HttpOnly" in cookie
        page = await fan.get(f"{site}/tickets/7?colour=red")
        assert (page.status_code, page.text) == (200, "the shop: GET /tickets/7?colour=red for [holder]")
        posted = await fan.post(f"{site}/basket", content=b"a=1")
        assert posted.text == "the shop: POST /basket for [holder]"


@ONE
async def test_a_code_works_once_and_only_in_the_redirected_browser(site):
    async with visitor() as fan, visitor() as thief:
        back = await return_link(fan, site, "/")
        await thief.get(f"{site}/")
        stolen = await thief.get(back)
        assert (stolen.status_code, stolen.headers["location"]) == (303, "/")
        assert "set-cookie" not in stolen.headers
        assert "set-cookie" not in (await fan.get(back)).headers, "the code was used"


@ONE
async def test_without_a_pass_pages_lead_to_the_room_and_calls_get_a_problem(site):
    async with visitor() as fan:
        refused = await fan.get(f"{site}/api/basket", headers=SCRIPT)
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
        assert (refused.json()["type"], refused.headers["cache-control"]) == ("/problems/no-credential", "no-store")
        assert refused.json()["waiting_room"].endswith("/e/show")
        form = await fan.post(f"{site}/pay", content=b"card=no")
        assert fragment_of(form.headers["location"])["return_to"] == "http://shop.example/"
        elsewhere = await fan.get(f"{site}/", headers={"host": "evil.example"})
        assert elsewhere.headers["location"].endswith("/e/show"), "without a return address"
        no_cookies = await fan.get(f"{site}/?onsale_handover=x", headers={"cookie": ""})
        assert no_cookies.headers["location"].endswith("/e/show"), "not in circles"
        own = {"x-onsale-holder": "me", "cookie": f"onsale_pass_show={signed_pass()}"}
        assert (await fan.get(f"{site}/", headers=own)).text.endswith("for [holder]")
        assert (await fan.get(f"{site}/up", headers={"x-onsale-holder": "me"})).text.endswith("for []")


@EACH
async def test_only_a_valid_pass_of_this_event_opens_the_shop(site):
    good, now_s = signed_pass(), int(time.time())
    header, claims, signature = good.split(".")
    body = jwt.decode(good, options={"verify_signature": False})
    private = Ed25519PrivateKey.from_private_bytes(development_keys("pass").keys["dev"])
    unsigned = jwt.utils.base64url_encode(b'{"alg":"none","kid":"dev","typ":"JWT"}').decode()
    changed = jwt.utils.base64url_encode(json.dumps({**body, "sub": "another"}).encode()).decode()
    by_secret = jwt.encode(body, "a secret that is long enough for HS256", "HS256", headers={"kid": "dev"})
    last = signature[:-1] + ("B" if signature[-1] == "A" else chr(ord(signature[-1]) + 1))
    signed = {
        change: jwt.encode({**body, change: value}, private, "EdDSA", headers={"kid": "dev"})
        for change, value in {"typ": "onsale-queue", "iss": "another", "nbf": now_s + 3600}.items()
    }
    wrong = {
        "foreign key": signed_pass(keys="another"), "expired": signed_pass(expires_at_s=now_s - 60),
        "changed": f"{header}.{changed}.{signature}", "alg none": f"{unsigned}.{claims}.",
        "alg none with a signature": f"{unsigned}.{claims}.{signature}", "by a secret": by_secret,
        "no signature": f"{header}.{claims}.", "another spelling": f"{header}.{claims}.{last}",
        "no pass": "e30.e30.e30", "a word": "x", **signed,
    }  # fmt: skip
    async with visitor() as fan:
        for what, text in wrong.items():
            answer = await fan.get(f"{site}/", headers={**SCRIPT, **bearer(text)})
            assert (answer.status_code, answer.json()["type"]) == (401, "/problems/bad-credential"), what
            page = await fan.get(f"{site}/", headers={"cookie": f"onsale_pass_show={text}"})
            assert page.status_code == 303, what
        other = await fan.get(f"{site}/", headers={**SCRIPT, **bearer(signed_pass(event_id="other"))})
        assert (other.status_code, other.json()["type"]) == (403, "/problems/wrong-event")
        own_token = {"cookie": f"onsale_pass_show={good}", "authorization": "Basic c2hvcDpzZWNyZXQ="}
        assert (await fan.get(f"{site}/", headers=own_token)).status_code == 200
        assert (await fan.get(f"{site}/", headers=bearer(good))).status_code == 200


@ONE
async def test_allowed_paths_pass_and_tricky_spellings_of_them_do_not(site):
    async with visitor() as fan:
        for path in ALLOWED_PATHS:
            assert (await fan.get(site + path)).status_code == 200, path
        for path in TRICKY_PATHS:
            assert (await get_as_written(site, path)).status_code == 303, path
        assert (await fan.post(f"{site}/assets/x")).status_code == 303
        preflight = {"origin": "http://shop.example", "access-control-request-method": "POST", **SCRIPT}
        assert (await fan.options(f"{site}/api", headers=preflight)).status_code == 200
        assert (
            await fan.options(f"{site}/api", headers={**preflight, "origin": "http://evil.example"})
        ).status_code == 401


@ONE
@pytest.mark.parametrize("policy", ["open", "closed"])
async def test_while_the_keys_cannot_be_fetched_the_policy_decides(program, policy):
    async with (
        serving(shop()) as origin,
        gate(program, "http://127.0.0.1:9", f"http://127.0.0.1:{origin}", ONSALE_ON_OUTAGE=policy) as site,
        visitor() as fan,
    ):
        with_pass = await fan.get(f"{site}/", headers=bearer(signed_pass()))
        without = await fan.get(f"{site}/")
        if policy == "open":
            assert (with_pass.status_code, without.status_code) == (200, 200)
        else:
            assert (with_pass.status_code, with_pass.headers["retry-after"]) == (503, "5")
            assert with_pass.json()["type"] == "/problems/unavailable"
            assert without.status_code == 303, "who has no pass waits for one"
        assert (await fan.get(f"{site}/up")).status_code == 200


def test_keys_outages_settings_and_signatures() -> None:
    """The shared part of the gates, in Node's own test runner, with a clock that tests set."""
    script = Path(__file__).with_name("gate.test.mjs")
    ran = subprocess.run([need("node"), "--test", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "pass 10" in ran.stdout, ran.stdout
