"""A session stands for the key that began it: roles, expiry, origin; nothing can be changed in it."""

import time
from contextlib import nullcontext

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from shared.errors.problems import BadCredential
from shared.process.settings import ServiceSettings
from shared.security.auth import (
    AdminKeys,
    AnOperator,
    Operator,
    OperatorSession,
    Viewer,
    read_session,
    session_cookie,
    sign_session,
)
from shared.security.tokens import development_keys
from shared.web.app import create_service, public
from tests.support.running.suite import problem

SECRETS = {role: f"the-secret-of-a-{role}-here" for role in ("viewer", "operator", "admin")}
ADMIN_KEYS = AdminKeys(",".join(f"{role}:{role}:{secret}" for role, secret in SECRETS.items()))
RING = development_keys("service")
NOW_S = int(time.time())


def session(role: str = "operator") -> OperatorSession:
    return ADMIN_KEYS.session(SECRETS[role], now_s=NOW_S)


@pytest.fixture
def app() -> FastAPI:
    router = APIRouter()

    @router.get("/admin/thing")
    async def read(operator: Viewer) -> str:
        return operator.name

    @router.post("/admin/thing")
    async def change(operator: AnOperator) -> str:
        return operator.name

    settings = ServiceSettings(admin_keys=ADMIN_KEYS)
    return create_service("queue", settings, title="any", lifespan=lambda app: nullcontext(), routers=[router])


def client(app: FastAPI, text: str, host: str = "localhost:8000") -> httpx.AsyncClient:
    cookie = {"cookie": f"{session_cookie({b'host': host.encode()})}={text}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url=f"http://{host}", headers=cookie)


async def test_every_service_accepts_the_cookie_like_the_key(app: FastAPI) -> None:
    for host in ("localhost:8000", "console.example"):
        async with client(app, sign_session(RING, session()), host) as browser:
            assert (await browser.get("/admin/thing")).json() == "operator"
            scheme = "http" if host.startswith("localhost") else "https"
            own = await browser.post("/admin/thing", headers={"origin": f"{scheme}://{host}"})
            assert own.json() == "operator"


@pytest.mark.parametrize(
    ("host", "bound"),
    [
        ("localhost:8000", False),
        ("127.0.0.2:8000", False),
        ("[::1]:8000", False),
        ("console.example", True),
        ("", True),
    ],
)
def test_only_at_an_address_of_this_machine_the_cookie_does_without_https(host: str, bound: bool) -> None:
    assert session_cookie({b"host": host.encode()}).startswith("__Host-") is bound


async def test_a_write_with_the_cookie_needs_our_own_origin(app: FastAPI) -> None:
    async with client(app, sign_session(RING, session())) as browser:
        ours_over_https = {"origin": "http://localhost:8000", "x-forwarded-proto": "https"}
        for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}, ours_over_https):
            assert problem(await browser.post("/admin/thing", headers=headers)) == (403, "foreign-origin")
        bearer = {"authorization": f"Bearer {SECRETS['operator']}"}
        assert (await browser.post("/admin/thing", headers=bearer)).status_code == 200, "a key needs none"


async def test_a_viewer_cannot_change_anything(app: FastAPI) -> None:
    async with client(app, sign_session(RING, session("viewer"))) as browser:
        assert (await browser.get("/admin/thing")).status_code == 200
        answer = await browser.post("/admin/thing", headers={"origin": "http://localhost:8000"})
        assert problem(answer) == (403, "not-allowed")


def test_a_session_expires_and_cannot_be_changed() -> None:
    text = sign_session(RING, session("viewer"))
    assert read_session(RING, ADMIN_KEYS, text, now_s=NOW_S) == session("viewer")
    with pytest.raises(BadCredential):
        read_session(RING, ADMIN_KEYS, text, now_s=NOW_S + 8 * 3600)
    mark, kid, claims, mac = text.split(".")
    other = sign_session(RING, session("admin")).split(".")[2]
    for forged in (
        f"{mark}.{kid}.{other}.{mac}", f"{mark}.none.{claims}.{mac}", f"{mark}.{kid}.{claims}.AAAA", "operator.x.y", "",
        f"{mark}.{kid}.{claims}.{mac}=", f"{mark}.{kid}.{claims}.é", f"operatoR.{kid}.{claims}.{mac}",
        f".{kid}.{claims}.{mac}", f"{mark}..{claims}.{mac}",
    ):  # fmt: skip
        with pytest.raises(BadCredential):
            read_session(RING, ADMIN_KEYS, forged, now_s=NOW_S)
    with pytest.raises(BadCredential):
        read_session(development_keys("another"), ADMIN_KEYS, text, now_s=NOW_S)


def test_a_service_that_asks_for_itself_may_only_view() -> None:
    for role, accepted in (("viewer", True), ("operator", False), ("admin", False)):
        text = sign_session(RING, OperatorSession(Operator("console", role), "", NOW_S + 60))  # type: ignore[arg-type]
        if accepted:
            assert read_session(RING, AdminKeys(), text, now_s=NOW_S).operator.name == "console"
        else:
            with pytest.raises(BadCredential):
                read_session(RING, ADMIN_KEYS, text, now_s=NOW_S)
