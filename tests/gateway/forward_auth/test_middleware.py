"""The middleware in a plain Starlette app, over real HTTP, with a real gateway."""

import asyncio
import base64
import subprocess
import sys
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
from shared.runtime.settings import development_keys
from shared.security.tokens import Keyring, Pass, PassReader, jwks, sign_pass
from shared.web.app import public
from tests.gateway.forward_auth.test_forward_auth import admission
from tests.support.providers.shop import PAGE, SCRIPT
from tests.support.running.serving import serving


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
    line = queue.open()
    async with serving(public(app)) as gateway, guarded(f"http://127.0.0.1:{gateway}") as fan:
        site = str(fan.base_url).rstrip("/")
        line.options = {"gate": {"waiting_room": "http://room.example", "return_to": [site], "let_through": ["/up"]}}
        yield fan


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_a_pass_is_verified_without_a_request(shop, queue):
    for carries in (bearer(admission()), {"cookie": f'theirs="x; onsale_pass_show={admission()}'}):
        page = await shop.get("/seats", headers=carries)
        assert (page.status_code, page.json()) == (200, {"holder": "holder"})
    assert queue.calls["/rooms/frame"] == 0


async def test_without_a_valid_pass_forward_auth_decides(shop, queue):
    now_s = int(time.time())
    for text in (
        admission(event_id="other"), admission(expires_at_s=now_s - 60), admission(keys="another"), "e30.e30.e30", "x",
    ):  # fmt: skip
        refused = await shop.get("/seats", headers=bearer(text))
        assert refused.status_code in (401, 403), text
        assert refused.headers["content-type"] == "application/problem+json"
    sent = await shop.get("/seats?row=1", headers=PAGE)
    assert (sent.status_code, sent.headers["location"].partition("#")[0]) == (303, "http://room.example/e/show")
    assert sent.headers["set-cookie"].startswith("onsale_gate_show=")
    assert (await shop.get("/up")).json() == {"holder": None}


async def test_a_fan_comes_back_with_a_code_here_as_well(shop, fan):
    sent = await shop.get("/seats?row=1", headers=PAGE)
    gate = sent.headers["location"].rpartition("gate=")[2]
    body = {"return_to": f"{str(shop.base_url).rstrip('/')}/seats?row=1", "gate": gate}
    handed = await fan.post("/events/show/queue/handover", json=body, headers=bearer(admission()))
    landed = await shop.get(handed.json()["location"], headers=PAGE)
    assert (landed.status_code, landed.headers["location"]) == (303, body["return_to"])
    assert (await shop.get("/seats?row=1", headers=PAGE)).json() == {"holder": "holder"}


async def test_a_released_slot_comes_back_and_the_pass_is_dead(shop, queue):
    carries = bearer(admission())
    thanks = await shop.post("/thanks", headers=carries)
    assert (thanks.status_code, thanks.json()) == (200, {"holder": "holder"})
    assert "onsale-release" not in thanks.headers
    assert queue.rooms["show"].ended == {1: "completed"}
    assert (await shop.get("/seats", headers=carries)).status_code == 401


async def test_no_pass_can_choose_its_algorithm(shop, app):
    good = admission()
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


class Keys:
    """A gateway that serves its keys only; counts requests for them."""

    def __init__(self) -> None:
        self.ring, self.calls, self.away = development_keys("pass"), 0, False

    async def __call__(self, scope, receive, send) -> None:
        keys = scope["path"] == "/.well-known/jwks.json"
        self.calls += keys
        answer = JSONResponse(jwks(self.ring.public())) if keys and not self.away else JSONResponse({}, 500)
        await answer(scope, receive, send)


async def test_keys_are_cached_refetched_after_a_rotation_and_not_fetched_for_every_unknown_key(monkeypatch):
    keys, old = Keys(), admission()
    rotated = Keyring({"new": b"n" * 32, **keys.ring.keys})
    async with serving(keys) as port, guarded(f"http://127.0.0.1:{port}") as fan:
        crowd = await asyncio.gather(*(fan.get("/", headers=bearer(old)) for _ in range(10)))
        assert {answer.status_code for answer in crowd} == {200}
        assert keys.calls == 1
        keys.ring = rotated
        new = sign_pass(rotated, _pass_of(old))
        assert (await fan.get("/", headers=bearer(new))).status_code == 500, "not yet: it fetched the keys a moment ago"
        assert keys.calls == 1
        monkeypatch.setattr(middleware, "FETCH_INTERVAL_S", 0)
        assert (await fan.get("/", headers=bearer(new))).status_code == 200
        assert (await fan.get("/", headers=bearer(old))).status_code == 200
        assert keys.calls == 2
        keys.away = True
        monkeypatch.setattr(middleware, "KEYS_FRESH_S", 0)
        assert (await fan.get("/", headers=bearer(new))).status_code == 200, "what was fetched stays good"
        assert keys.calls == 3


def _pass_of(text: str) -> Pass:
    return PassReader(development_keys("pass").public()).read(text, now_s=time.time())


async def test_without_an_answer_from_the_gateway_nobody_without_a_pass_is_admitted():
    async with guarded("http://127.0.0.1:9") as fan:
        refused = await fan.get("/seats", headers=bearer(admission()))
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")


def test_it_is_imported_without_the_rest_of_onsale(tmp_path: Path):
    copied = tmp_path / "middleware.py"
    copied.write_text(Path(middleware.__file__).read_text())
    ours = "('onsale', 'shared', 'services')"
    program = f"import sys, middleware; print([m for m in sys.modules if m.split('.')[0] in {ours}])"
    only_it = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    ran = subprocess.run([sys.executable, "-c", program], env=only_it, capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
