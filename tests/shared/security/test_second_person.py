"""What cannot be taken back is done only with an approval of exactly this request, by somebody else who may do it."""

import importlib
import time
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from shared.errors.problems import SecondPersonNeeded
from shared.process.controls import CONTROLS, controls_of
from shared.process.settings import ServiceSettings
from shared.routes import route
from shared.rules.two_persons import Role
from shared.security import auth
from shared.security.auth import AdminKeys, ApprovedRequest, KeyHolder, OperatorSession, approver_of, sign_approval
from shared.security.tokens import development_keys
from shared.web.app import public
from tests.support.running.suite import problem

NAMES = {"ana": "admin", "ben": "admin", "cleo": "operator", "vic": "viewer"}
SECRETS = {name: f"the-secret-of-{name}-for-tests" for name in NAMES}
TEXT = ",".join(f"{name}:{role}:{SECRETS[name]}" for name, role in NAMES.items())
ADMIN_KEYS = AdminKeys(TEXT + ",ana:admin:another-secret-of-ana-for-tests")
RING = development_keys("service")
NOW_S = int(time.time())
REQUEST = ApprovedRequest.of("/admin/events/e/room/close", b'{"reason":"over"}', idempotency_key="k", if_match='"7"')


def session(name: str) -> OperatorSession:
    return ADMIN_KEYS.session(SECRETS[name], now_s=NOW_S)


def signed(by: OperatorSession, *, keys: Any = RING, holder: KeyHolder | None = None, expires_at_s: int = 0) -> str:
    expires_at_s = expires_at_s or NOW_S + 60
    return sign_approval(keys, REQUEST, holder or session("ana").holder, by, expires_at_s=expires_at_s)


def check(
    text: str, request: ApprovedRequest = REQUEST, holder: KeyHolder | None = None, *,
    keys: AdminKeys = ADMIN_KEYS, role: Role = "admin",
) -> str:  # fmt: skip
    return approver_of(RING, keys, text, request, holder or session("ana").holder, role=role, now_s=NOW_S).name


def refused(text: str, **how: Any) -> str:
    with pytest.raises(SecondPersonNeeded) as raised:
        check(text, **how)
    return str(raised.value)


def test_an_approval_by_another_person_who_may_do_it_counts() -> None:
    assert check(signed(session("ben"))) == "ben"
    assert check(signed(session("cleo")), role="operator") == "cleo"


def test_an_approval_that_no_service_signed_does_not_count() -> None:
    text = signed(session("ben"))
    mark, kid, claims, mac = text.split(".")
    other = signed(session("cleo")).split(".")[2]
    for forged in (f"{mark}.{kid}.{other}.{mac}", f"{mark}.{kid}.{claims}.AAAA", f"operator.{kid}.{claims}.{mac}"):
        assert "not ours" in refused(forged)
    for broken in ("", "a.b", f"{mark}.none.{claims}.{mac}", f"{mark}.{kid}.{claims}.é", f"{text}="):
        assert "cannot be read" in refused(broken)
    assert "not ours" in refused(signed(session("ben"), keys=development_keys("another")).replace("dev", kid))


def test_a_session_is_no_approval() -> None:
    text = auth.sign_session(RING, session("ben"))
    assert "not ours" in refused(text)
    assert "not ours" in refused(text.replace("operator.", "approval.", 1))


def test_an_approval_expires() -> None:
    assert "expired" in refused(signed(session("ben"), expires_at_s=NOW_S))


@pytest.mark.parametrize("field", ApprovedRequest._fields)
def test_nothing_of_the_request_may_differ(field: str) -> None:
    assert "another request" in refused(signed(session("ben")), request=REQUEST._replace(**{field: "other"}))


def test_an_approval_is_of_no_use_to_another_operator() -> None:
    """Nor to one who took the name, or uses another key of it."""
    text = signed(session("ben"))
    assert "another operator" in refused(text, holder=session("cleo").holder)
    assert "another operator" in refused(text, holder=session("ana").holder._replace(fingerprint="another"))
    assert "another operator" in refused(text, holder=session("ana").holder._replace(name="another"))


def test_nobody_approves_what_they_asked_for_not_with_a_second_key_either() -> None:
    second_key = ADMIN_KEYS.session("another-secret-of-ana-for-tests", now_s=NOW_S)
    assert "themselves" in refused(signed(session("ana")))
    assert "themselves" in refused(signed(second_key))
    renamed = OperatorSession(auth.Operator("ana2", "admin"), session("ana").fingerprint, NOW_S)
    assert "themselves" in refused(signed(renamed))


def test_the_approver_must_still_have_the_key_and_the_role() -> None:
    text = signed(session("ben"))
    for changed in (
        TEXT.replace(SECRETS["ben"], "another-secret-of-ben-here"), TEXT.replace("ben:admin", "ben:operator"),
        TEXT.replace("ben:", "bob:"),
    ):  # fmt: skip
        assert "any more" in refused(text, keys=AdminKeys(changed))
    assert "any more" in refused(signed(session("cleo")), role="admin")
    assert "any more" in refused(signed(session("vic")), role="operator")


# -- the routes ------------------------------------------------------------------------------------------------------


@cache
def create(service: str, two_persons: str = "") -> FastAPI:
    """The service without what is behind its handlers."""
    settings = importlib.import_module(f"services.{service}.settings").Settings
    chosen = settings(admin_keys=ADMIN_KEYS, two_persons=two_persons)
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
    headers = {"authorization": f"Bearer {SECRETS['ana']}", "idempotency-key": "k"}
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
            text = sign_approval(RING, wanted, session("ana").holder, session(by), expires_at_s=expires_at_s)
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
        assert await attempt("ana", authorization=f"Bearer {SECRETS['ben']}") == refused


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
