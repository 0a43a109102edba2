"""`WaitingRoomMiddleware` in a Starlette app, over HTTP, with a running gateway."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from onsale import middleware
from onsale.middleware import WaitingRoomMiddleware
from shared.security.tokens import Keyring, Pass, PassReader, development_keys, jwks, sign_pass
from shared.web.app import public
from tests.gateway.tokens import signed_pass
from tests.support.programs import run_with_only
from tests.support.providers.shop import PAGE, SCRIPT
from tests.support.running.serving import serving
from tests.support.running.suite import bearer


async def _buy(request: Request) -> JSONResponse:
    claims = request.scope["onsale.pass"]
    released = {"onsale-release": "1"} if request.url.path == "/thanks" else {}
    return JSONResponse({"holder": claims and claims["sub"]}, headers=released)


@asynccontextmanager
async def guarded(room: str) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=[Route("/{path:path}", _buy, methods=["GET", "POST"])])
    wrapped = WaitingRoomMiddleware(app, event_id="show", room=room)
    async with (
        aclosing(wrapped),
        serving(wrapped) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=SCRIPT, trust_env=False) as fan,
    ):
        yield fan


@pytest.fixture
async def shop(app, queue) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(public(app)) as gateway, guarded(f"http://127.0.0.1:{gateway}") as fan:
        site = str(fan.base_url).rstrip("/")
        await queue.open(gate={"waiting_room": "http://room.example", "return_to": [site], "let_through": ["/up"]})
        yield fan


async def test_a_pass_is_verified_without_a_request(shop, queue):
    for headers in (bearer(signed_pass()), {"cookie": f'shop="x; onsale_pass_show={signed_pass()}'}):
        page = await shop.get("/seats", headers=headers)
        assert (page.status_code, page.json()) == (200, {"holder": "holder"})
    assert queue.calls["/rooms/frame"] == 0


async def test_a_request_without_a_valid_pass_is_decided_by_forward_auth(shop, queue):
    now_s = int(time.time())
    for text in (
        signed_pass(event_id="other"), signed_pass(expires_at_s=now_s - 60), signed_pass(keys="another"),
        "e30.e30.e30", "x",
    ):  # fmt: skip
        refused = await shop.get("/seats", headers=bearer(text))
        assert refused.status_code in (401, 403), text
        assert refused.headers["content-type"] == "application/problem+json"
    redirect = await shop.get("/seats?row=1", headers=PAGE)
    assert (redirect.status_code, redirect.headers["location"].partition("#")[0]) == (303, "http://room.example/e/show")
    assert redirect.headers["set-cookie"].startswith("onsale_gate_show=")
    assert (await shop.get("/up")).json() == {"holder": None}


async def test_a_fan_returns_from_the_waiting_room_with_a_handover_code(shop, fan):
    redirect = await shop.get("/seats?row=1", headers=PAGE)
    browser_id = redirect.headers["location"].rpartition("gate=")[2]
    body = {"return_to": f"{str(shop.base_url).rstrip('/')}/seats?row=1", "gate": browser_id}
    handover = await fan.post("/events/show/queue/handover", json=body, headers=bearer(signed_pass()))
    arrival = await shop.get(handover.json()["location"], headers=PAGE)
    assert (arrival.status_code, arrival.headers["location"]) == (303, body["return_to"])
    assert (await shop.get("/seats?row=1", headers=PAGE)).json() == {"holder": "holder"}


async def test_a_response_header_releases_the_slot_and_the_pass_is_refused(shop, queue):
    headers = bearer((await queue.admit("holder")).admission)
    thanks = await shop.post("/thanks", headers=headers)
    assert (thanks.status_code, thanks.json()) == (200, {"holder": "holder"})
    assert "onsale-release" not in thanks.headers
    assert await queue.ended() == {1: "completed"}
    assert (await shop.get("/seats", headers=headers)).status_code == 401


async def test_a_pass_cannot_choose_its_algorithm_or_change_its_claims(shop, app):
    good = signed_pass()
    header, claims, signature = good.split(".")
    (key,) = jwks(development_keys("pass").public())["keys"]
    unsigned = jwt.utils.base64url_encode(b'{"alg":"none","kid":"dev","typ":"JWT"}').decode()
    body = jwt.decode(good, options={"verify_signature": False})
    by_secret = jwt.encode(body, base64.urlsafe_b64decode(key["x"] + "="), "HS256", headers={"kid": "dev"})
    for text in (f"{unsigned}.{claims}.", f"{unsigned}.{claims}.{signature}", by_secret, f"{header}.{claims}."):
        assert (await shop.get("/seats", headers=bearer(text))).status_code == 401
    private = Ed25519PrivateKey.from_private_bytes(development_keys("pass").keys["dev"])
    for change in ({"typ": "onsale-queue"}, {"iss": "another"}, {"aud": "other"}, {"nbf": body["nbf"] + 3600}):
        text = jwt.encode({**body, **change}, private, "EdDSA", headers={"kid": "dev"})
        assert (await shop.get("/seats", headers=bearer(text))).status_code in (401, 403), change


class FakeKeyServer:
    """A gateway that serves only its public keys, and counts the requests for them."""

    def __init__(self) -> None:
        self.ring, self.calls, self.away = development_keys("pass"), 0, False

    async def __call__(self, scope, receive, send) -> None:
        for_keys = scope["path"] == "/.well-known/jwks.json"
        self.calls += for_keys
        answer = JSONResponse(jwks(self.ring.public())) if for_keys and not self.away else JSONResponse({}, 500)
        await answer(scope, receive, send)


async def test_keys_are_cached_and_fetched_again_for_an_unknown_key_but_not_each_time(monkeypatch):
    server, old = FakeKeyServer(), signed_pass()
    rotated = Keyring({"new": b"n" * 32, **server.ring.keys})
    async with serving(server) as port, guarded(f"http://127.0.0.1:{port}") as fan:
        answers = await asyncio.gather(*(fan.get("/", headers=bearer(old)) for _ in range(10)))
        assert {answer.status_code for answer in answers} == {200}
        assert server.calls == 1
        server.ring = rotated
        new = sign_pass(rotated, _pass_of(old))
        assert (await fan.get("/", headers=bearer(new))).status_code == 500, "no second fetch within the interval"
        assert server.calls == 1
        monkeypatch.setattr(middleware, "FETCH_INTERVAL_S", 0)
        assert (await fan.get("/", headers=bearer(new))).status_code == 200
        assert (await fan.get("/", headers=bearer(old))).status_code == 200
        assert server.calls == 2
        server.away = True
        monkeypatch.setattr(middleware, "KEYS_FRESH_S", 0)
        assert (await fan.get("/", headers=bearer(new))).status_code == 200, "the cached keys stay valid"
        assert server.calls == 3


def _pass_of(text: str) -> Pass:
    return PassReader(development_keys("pass").public()).read(text, now_s=time.time())


async def test_without_an_answer_from_the_gateway_the_middleware_answers_503():
    async with guarded("http://127.0.0.1:9") as fan:
        refused = await fan.get("/seats", headers=bearer(signed_pass()))
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")


def test_the_middleware_needs_httpx_and_pyjwt_and_nothing_else_not_even_onsale(tmp_path: Path):
    copied = tmp_path / "copied.py"
    copied.write_text(Path(middleware.__file__).read_text())
    code = "import copied; copied.WaitingRoomMiddleware(None, event_id='show', room='http://room'); print('made')"
    assert run_with_only("httpx", "pyjwt[crypto]", code=code, folder=tmp_path) == "made\n"
