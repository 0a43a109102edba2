"""Credentials of operators: a Bearer header comes before a cookie, and a cookie allows writes from our own pages only.

A session stands for the key that began it; guesses are limited, and right codes never refused. What cannot be taken
back is done only with an approval of exactly this request, by somebody else who may do it.
"""

import asyncio
import importlib
import time
from collections import Counter
from contextlib import nullcontext
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import ValidationError
from starlette.types import Scope

from shared.errors.problems import (
    BadCredential,
    ForeignOrigin,
    NoCredential,
    Overloaded,
    SecondPersonNeeded,
    TooManyWrongCodes,
)
from shared.process.settings import CONTROLS, ServiceSettings, controls_of
from shared.routes import route
from shared.rpc import SERVICE_HEADER, check_service_call, sign_service_call
from shared.security import auth, limits
from shared.security.auth import (
    AdminKeys,
    AnOperator,
    ApprovedRequest,
    KeyHolder,
    Operator,
    OperatorSession,
    Role,
    Viewer,
    approver_of,
    read_session,
    session_cookie,
    sign_approval,
    sign_session,
)
from shared.security.limits import GuessLimiter
from shared.security.tokens import credentials, development_keys, first_valid, set_cookie
from shared.web.app import create_service, public
from tests.support.running.suite import problem

KEY = "k" * 24


def request(method: str = "GET", **headers: str) -> Scope:
    raw = [(name.encode(), value.encode()) for name, value in {"host": "tickets.test", **headers}.items()]
    return {"type": "http", "method": method, "headers": raw}


def test_an_authorization_header_comes_before_the_cookie() -> None:
    assert credentials(request(authorization="Bearer t1", cookie="c=t2"), "c") == ["t1"]
    with pytest.raises(BadCredential):
        credentials(request(authorization="Basic dDE6", cookie="c=t2"), "c")


def test_a_cookie_reads_from_anywhere_and_writes_from_our_own_pages_only() -> None:
    assert credentials(request(cookie="c=t2"), "c") == ["t2"]
    assert credentials(request("POST", cookie="c=t2", origin="https://tickets.test"), "c") == ["t2"]
    for origin in ({"origin": "https://evil.test"}, {"origin": "null"}, {}):
        with pytest.raises(ForeignOrigin):
            credentials(request("POST", cookie="c=t2", **origin), "c")


@pytest.mark.parametrize(
    ("cookie", "said_by_the_balancer", "accepted"),
    [
        ("__Host-c", {}, {"https"}),
        ("__Host-c", {"x-forwarded-proto": "http"}, {"https"}),
        ("c", {"x-forwarded-proto": "https"}, {"https"}),
        ("c", {"x-forwarded-proto": "http"}, {"http"}),
        ("c", {}, {"http", "https"}),
    ],
)
def test_a_write_with_a_cookie_comes_from_a_page_of_the_same_scheme(
    cookie: str, said_by_the_balancer: dict[str, str], accepted: set[str]
) -> None:
    for scheme in ("http", "https", "ftp", ""):
        fields = {"cookie": f"{cookie}=t", "origin": f"{scheme}://tickets.test", **said_by_the_balancer}
        with nullcontext() if scheme in accepted else pytest.raises(ForeignOrigin):
            assert credentials(request("POST", **fields), cookie) == ["t"]


def test_a_request_without_a_credential_is_refused() -> None:
    with pytest.raises(NoCredential):
        credentials(request(), "c")


async def test_the_first_valid_cookie_counts_and_the_problem_is_that_of_the_last() -> None:
    async def read(text: str) -> str:
        if text.startswith("bad"):
            raise BadCredential(text)
        return text

    texts = credentials(request(cookie="a=bad1; b=; c=good"), "c", "a", "b")
    assert texts == ["good", "bad1"]
    assert await first_valid(["bad1", "good"], read) == "good"
    with pytest.raises(BadCredential, match="bad2"):
        await first_valid(["bad1", "bad2"], read)


def test_an_admin_key_names_an_operator_and_a_role() -> None:
    keys = AdminKeys(f"ops:operator:{KEY},boss:admin:{KEY}2")
    assert keys.operator(KEY) == ("ops", "operator")
    assert keys.operator(f"{KEY}2") == ("boss", "admin")
    with pytest.raises(BadCredential):
        keys.operator("k" * 23)
    assert KEY not in repr(keys)


@pytest.mark.parametrize("text", ["ops", "ops:root:" + KEY, "ops:admin:short", "o ps:admin:" + KEY])
def test_an_invalid_admin_key_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="admin key"):
        AdminKeys(text)


def test_a_credential_is_in_a_cookie_that_no_script_reads() -> None:
    flags = set(set_cookie("c", "t", max_age_s=60, secure=True).split("; "))
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Path=/"} < flags
    assert "HttpOnly" not in set_cookie("c", "1", max_age_s=60, secure=False, readable=True)


def test_a_signed_call_is_good_for_half_a_minute_and_for_this_body_only() -> None:
    keys = development_keys("service")
    header = sign_service_call(keys, "POST", "/internal/x", b"{}", at_s=1_000)[SERVICE_HEADER]
    check_service_call(keys, header, "POST", "/internal/x", b"{}", now_s=1_030)
    check_service_call(keys, header, "POST", "/internal/x", b"{}", now_s=970)
    for method, path, body, now_s in (
        ("POST", "/internal/x", b"{}", 1_031), ("POST", "/internal/x", b"{}", 969),
        ("POST", "/internal/x", b"[]", 1_000), ("PUT", "/internal/x", b"{}", 1_000),
        ("POST", "/internal/y", b"{}", 1_000),
    ):  # fmt: skip
        with pytest.raises(BadCredential):
            check_service_call(keys, header, method, path, body, now_s=now_s)


async def look_up(limiter: GuessLimiter, seen: Counter[str], code: str, key: str = "fan") -> str:
    try:
        async with limiter.guess(key) as guess:
            seen[code] += 1
            await asyncio.sleep(0.001)
            guess.wrong = code != "right"
    except TooManyWrongCodes:
        return "limited"
    return "wrong" if guess.wrong else "right"


async def test_two_hundred_guesses_at_once_are_looked_up_to_the_limit_only() -> None:
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    answers = await asyncio.gather(*(look_up(limiter, seen, f"no-{n}") for n in range(200)))
    assert seen.total() == 10
    assert Counter(answers) == {"wrong": 10, "limited": 190}
    assert await look_up(limiter, seen, "right") == "limited"
    assert await look_up(limiter, seen, "right", key="another fan") == "right"


async def test_right_codes_sent_at_once_are_all_looked_up() -> None:
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    assert set(await asyncio.gather(*(look_up(limiter, seen, "right") for _ in range(300)))) == {"right"}
    answers = await asyncio.gather(*(look_up(limiter, seen, f"no-{n}") for n in range(20)))
    assert Counter(answers) == {"wrong": 10, "limited": 10}, "their tokens came back, once"


async def test_wrong_codes_among_right_ones_use_up_the_tokens() -> None:
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    codes = ["right" if n % 2 else f"no-{n}" for n in range(200)]
    answers = Counter(await asyncio.gather(*(look_up(limiter, seen, code) for code in codes)))
    assert answers["wrong"] == 10
    assert not limiter._under_way
    assert not limiter._waiting


async def test_a_look_up_that_is_cancelled_counts_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_MAX", 20)
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    guesses = [asyncio.create_task(look_up(limiter, seen, "right")) for _ in range(31)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await guesses.pop()
    for guess in guesses[5:]:
        guess.cancel()
    answers = await asyncio.gather(*guesses, return_exceptions=True)
    assert Counter(map(str, answers)) == {"right": 5, "": 25}
    assert not limiter._under_way
    assert not limiter._waiting
    assert Counter(await asyncio.gather(*(look_up(limiter, seen, "no") for _ in range(9)))) == {
        "wrong": 5,
        "limited": 4,
    }


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


NAMES = {"ana": "admin", "ben": "admin", "cleo": "operator", "vic": "viewer"}
SECRET_OF = {name: f"the-secret-of-{name}-for-tests" for name in NAMES}
TEXT = ",".join(f"{name}:{role}:{SECRET_OF[name]}" for name, role in NAMES.items())
PERSONS = AdminKeys(TEXT + ",ana:admin:another-secret-of-ana-for-tests")
REQUEST = ApprovedRequest.of("/admin/events/e/room/close", b'{"reason":"over"}', idempotency_key="k", if_match='"7"')


def session_of(name: str) -> OperatorSession:
    return PERSONS.session(SECRET_OF[name], now_s=NOW_S)


def signed(by: OperatorSession, *, keys: Any = RING, holder: KeyHolder | None = None, expires_at_s: int = 0) -> str:
    expires_at_s = expires_at_s or NOW_S + 60
    return sign_approval(keys, REQUEST, holder or session_of("ana").holder, by, expires_at_s=expires_at_s)


def check(
    text: str, request: ApprovedRequest = REQUEST, holder: KeyHolder | None = None, *,
    keys: AdminKeys = PERSONS, role: Role = "admin",
) -> str:  # fmt: skip
    return approver_of(RING, keys, text, request, holder or session_of("ana").holder, role=role, now_s=NOW_S).name


def refused(text: str, **how: Any) -> str:
    with pytest.raises(SecondPersonNeeded) as raised:
        check(text, **how)
    return str(raised.value)


def test_an_approval_by_another_person_who_may_do_it_counts() -> None:
    assert check(signed(session_of("ben"))) == "ben"
    assert check(signed(session_of("cleo")), role="operator") == "cleo"


def test_an_approval_that_no_service_signed_does_not_count() -> None:
    text = signed(session_of("ben"))
    mark, kid, claims, mac = text.split(".")
    other = signed(session_of("cleo")).split(".")[2]
    for forged in (f"{mark}.{kid}.{other}.{mac}", f"{mark}.{kid}.{claims}.AAAA", f"operator.{kid}.{claims}.{mac}"):
        assert "not ours" in refused(forged)
    for broken in ("", "a.b", f"{mark}.none.{claims}.{mac}", f"{mark}.{kid}.{claims}.é", f"{text}="):
        assert "cannot be read" in refused(broken)
    assert "not ours" in refused(signed(session_of("ben"), keys=development_keys("another")).replace("dev", kid))


def test_a_session_is_no_approval() -> None:
    text = auth.sign_session(RING, session_of("ben"))
    assert "not ours" in refused(text)
    assert "not ours" in refused(text.replace("operator.", "approval.", 1))


def test_an_approval_expires() -> None:
    assert "expired" in refused(signed(session_of("ben"), expires_at_s=NOW_S))


@pytest.mark.parametrize("field", ApprovedRequest._fields)
def test_nothing_of_the_request_may_differ(field: str) -> None:
    assert "another request" in refused(signed(session_of("ben")), request=REQUEST._replace(**{field: "other"}))


def test_an_approval_is_of_no_use_to_another_operator() -> None:
    """Nor to one who took the name, or uses another key of it."""
    text = signed(session_of("ben"))
    assert "another operator" in refused(text, holder=session_of("cleo").holder)
    assert "another operator" in refused(text, holder=session_of("ana").holder._replace(fingerprint="another"))
    assert "another operator" in refused(text, holder=session_of("ana").holder._replace(name="another"))


def test_nobody_approves_what_they_asked_for_not_with_a_second_key_either() -> None:
    second_key = PERSONS.session("another-secret-of-ana-for-tests", now_s=NOW_S)
    assert "themselves" in refused(signed(session_of("ana")))
    assert "themselves" in refused(signed(second_key))
    renamed = OperatorSession(auth.Operator("ana2", "admin"), session_of("ana").fingerprint, NOW_S)
    assert "themselves" in refused(signed(renamed))


def test_the_approver_must_still_have_the_key_and_the_role() -> None:
    text = signed(session_of("ben"))
    for changed in (
        TEXT.replace(SECRET_OF["ben"], "another-secret-of-ben-here"), TEXT.replace("ben:admin", "ben:operator"),
        TEXT.replace("ben:", "bob:"),
    ):  # fmt: skip
        assert "any more" in refused(text, keys=AdminKeys(changed))
    assert "any more" in refused(signed(session_of("cleo")), role="admin")
    assert "any more" in refused(signed(session_of("vic")), role="operator")


# -- the routes ------------------------------------------------------------------------------------------------------


@cache
def create(service: str, two_persons: str = "") -> FastAPI:
    """The service without what is behind its handlers."""
    settings = importlib.import_module(f"services.{service}.settings").Settings
    chosen = settings(admin_keys=PERSONS, two_persons=two_persons)
    app: FastAPI = importlib.import_module(f"services.{service}.app").create_app(chosen)
    app.state.deps = object()
    return app


def owner(control: str) -> str:
    """The service that has this route."""
    found = route(CONTROLS[control].path.format(event_id="e"))
    assert found
    return found.service


def client_of(service: str, two_persons: str) -> httpx.AsyncClient:
    """A client of the service, asked as ana."""
    headers = {"authorization": f"Bearer {SECRET_OF['ana']}", "idempotency-key": "k"}
    transport = httpx.ASGITransport(public(create(service, two_persons)))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


LISTS = (",".join([*CONTROLS][::2]), ",".join([*CONTROLS][1::2]))  # each control is in one of them
NO_OBJECT = b"[]"  # refused by every handler's model, which is read after the operator is known


@pytest.mark.parametrize("control", CONTROLS)
async def test_each_control_needs_a_second_person_when_it_is_listed_and_only_then(control: str) -> None:
    path = CONTROLS[control].path.format(event_id="e")
    own, other = LISTS if control in LISTS[0].split(",") else LISTS[::-1]
    async with client_of(owner(control), other) as client:
        assert problem(await client.post(path, content=NO_OBJECT)) == (422, "invalid-request")
    async with client_of(owner(control), own) as client:
        answer = await client.post(path, content=NO_OBJECT)
        assert problem(answer) == (403, "second-person-needed")
        assert answer.json()["control"] == control
        wanted = ApprovedRequest.of(path, NO_OBJECT, idempotency_key="k", if_match=None)

        async def attempt(by: str, *, to: str = path, content: bytes = NO_OBJECT, **changes: str) -> tuple[int, str]:
            expires_at_s = int(time.time()) + 60
            text = sign_approval(RING, wanted, session_of("ana").holder, session_of(by), expires_at_s=expires_at_s)
            headers = {"onsale-approval": text} | {name.replace("_", "-"): value for name, value in changes.items()}
            return problem(await client.post(to, content=content, headers=headers))

        in_the_handler, refused = (422, "invalid-request"), (403, "second-person-needed")
        assert await attempt("ben") == in_the_handler
        assert await attempt("cleo") == (in_the_handler if CONTROLS[control].role == "operator" else refused)
        for name in ("ana", "vic"):
            assert await attempt(name) == refused
        assert await attempt("ben", idempotency_key="other") == refused
        assert await attempt("ben", if_match='"1"') == refused
        assert await attempt("ben", content=b"{}") == refused
        assert await attempt("ben", to=CONTROLS[control].path.format(event_id="f")) == refused
        assert await attempt("ana", authorization=f"Bearer {SECRET_OF['ben']}") == refused


@pytest.mark.parametrize("control", CONTROLS)
async def test_no_spelling_of_a_path_goes_around_the_second_person(control: str) -> None:
    path = CONTROLS[control].path.format(event_id="e")
    async with client_of(owner(control), LISTS[control not in LISTS[0].split(",")]) as client:
        for spelling in (path.replace("admin", "%61dmin"), f"{path}%0A", f"{path}?x=1"):
            answer = await client.post(spelling, content=NO_OBJECT)
            refused = problem(answer) == (403, "second-person-needed")
            assert refused or "action: This must be" in answer.text, spelling
        for spelling in (f"{path}/", f"{path};x", f"/{path}", f"{path.upper()}"):
            answer = await client.post(spelling, content=NO_OBJECT)
            assert answer.status_code in (307, 404, 405) or "action: This must be" in answer.text, spelling


def test_the_controls_are_what_the_routes_say() -> None:
    assert {control: route.role for control, route in CONTROLS.items()} == {
        "close_room": "operator", "reset_room": "admin", "change_gate": "admin", "draw_lottery": "operator",
        "release_all": "operator", "approve_oversell": "admin", "refund_event": "operator",
    }  # fmt: skip
    assert CONTROLS["close_room"].path == "/admin/events/{event_id}/room/close"


def test_an_unknown_control_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONSALE_TWO_PERSONS", "close_room, reset_room")
    assert ServiceSettings().two_persons == {"close_room", "reset_room"}
    monkeypatch.setenv("ONSALE_TWO_PERSONS", "close_room,reset")
    with pytest.raises(ValidationError, match=r"no such control: reset; there are .*reset_room, "):
        ServiceSettings()
    assert controls_of("") == frozenset()
