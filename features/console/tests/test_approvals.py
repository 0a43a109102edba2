"""A second person approves what another operator asks for: kept ten minutes, decided once, told to every screen."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from features.console import approvals as module
from features.console.tables import approval
from features.console.tests.admin import EVENT
from features.console.tests.conftest import ADMIN_KEYS, KEYS, Console, Start, next_of
from shared.security.auth import AdminKeys, ApprovedRequest, approver_of
from tests.support.running.suite import problem

PATH = f"/console/api/events/{EVENT}/approvals"
BEN, EVA = "a-key-of-ben-another-operator", "a-key-of-eva-another-admin"
PEOPLE = AdminKeys(f"{ADMIN_KEYS},ben:operator:{BEN},eva:admin:{EVA}")
ANA = KEYS["operator"]
BODY = '{"reason":"The show is cancelled","rate_per_s":5}'
REFUND = {"control": "refund_event", "body": BODY, "idempotency_key": "a-key", "if_match": '"7"'}


@pytest.fixture
async def console(start: Start) -> AsyncIterator[Console]:
    async with start(admin_keys=PEOPLE, two_persons="refund_event,reset_room") as console:
        yield console


async def call(console: Console, method: str, path: str, key: str, body: Any = None) -> httpx.Response:
    async with console.client(key) as client:
        return await client.request(method, PATH + path, json=body)


async def ask(console: Console, key: str = ANA, **changes: Any) -> dict[str, Any]:
    answer = await call(console, "POST", "", key, REFUND | changes)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def listed(console: Console, key: str = KEYS["viewer"]) -> list[dict[str, Any]]:
    return list((await call(console, "GET", "", key)).json()["approvals"])


async def test_what_is_asked_for_is_shown_as_the_service_will_read_it(console: Console) -> None:
    asked = await ask(console)
    assert {name: asked[name] for name in ("control", "role", "reason", "requested_by", "status", "call")} == {
        "control": "refund_event", "role": "operator", "reason": "The show is cancelled", "call": None,
        "requested_by": "operator-1", "status": "pending",
    }  # fmt: skip
    assert asked["figures"] == {"rate_per_s": 5.0, "return_to_sale": False}, "with the defaults that it leaves out"
    assert await listed(console) == [asked]


async def test_an_approval_is_good_for_exactly_this_request_and_told_to_its_requester_alone(console: Console) -> None:
    asked = await ask(console)
    decided = (await call(console, "POST", f"/{asked['id']}/approve", BEN)).json()
    assert (decided["status"], decided["decided_by"], decided["call"]) == ("approved", "ben", None)
    for other in (BEN, EVA, KEYS["viewer"], KEYS["admin"]):
        assert [one["call"] for one in await listed(console, other)] == [None]
    [mine] = await listed(console, ANA)
    found, settings = mine["call"], console.app.state.settings
    assert (found["path"], found["body"]) == (f"/admin/orders/events/{EVENT}/refund", BODY)
    request = ApprovedRequest.of(
        found["path"], found["body"].encode(), idempotency_key=found["idempotency_key"], if_match=found["if_match"]
    )
    holder = PEOPLE.session(ANA, now_s=0).holder
    by = approver_of(
        settings.service_keys, PEOPLE, found["approval"], request, holder, role="operator",
        now_s=decided["expires_ms"] / 1000 - 1,
    )  # fmt: skip
    assert by.name == "ben"


async def test_one_person_cannot_decide_for_two_and_a_viewer_for_nobody(console: Console) -> None:
    asked = await ask(console)
    approve = f"/{asked['id']}/approve"
    assert problem(await call(console, "POST", approve, ANA)) == (403, "second-person-needed")
    assert problem(await call(console, "POST", approve, KEYS["viewer"])) == (403, "not-allowed")
    assert problem(await call(console, "POST", "", KEYS["viewer"], REFUND)) == (403, "not-allowed")
    reset = {"control": "reset_room", "body": '{"reason":"again"}'}
    assert problem(await call(console, "POST", "", ANA, reset)) == (403, "not-allowed"), "an admin's control"
    asked = await ask(console, EVA, **reset)
    assert problem(await call(console, "POST", f"/{asked['id']}/approve", BEN)) == (403, "not-allowed")
    assert (await call(console, "POST", f"/{asked['id']}/approve", KEYS["admin"])).json()["status"] == "approved"


async def test_it_is_decided_once_however_many_decide(console: Console) -> None:
    asked = await ask(console)
    paths = [f"/{asked['id']}/{how}" for how in ("approve", "refuse")]
    answers = await asyncio.gather(*(call(console, "POST", path, key) for path in paths for key in (BEN, EVA)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert {problem(answer) for answer in answers if answer.is_error} == {(409, "approval-decided")}
    [now] = await listed(console, ANA)
    assert (now["call"] is not None) == (now["status"] == "approved"), "what was refused is not signed"


async def test_only_the_requester_withdraws(console: Console) -> None:
    asked = await ask(console)
    assert problem(await call(console, "DELETE", f"/{asked['id']}", BEN)) == (403, "not-allowed")
    assert (await call(console, "DELETE", f"/{asked['id']}", ANA)).status_code == 204
    assert await listed(console) == []
    for method, path in (("POST", "/approve"), ("POST", "/refuse"), ("DELETE", "")):
        answer = await call(console, method, f"/{asked['id']}{path}", BEN)
        assert problem(answer) == (404, "unknown-approval")


async def test_a_request_of_another_event_is_not_found(console: Console) -> None:
    asked = await ask(console)
    async with console.client(BEN) as client:
        other = PATH.replace(EVENT, "another")
        for method, path in (("POST", "/approve"), ("DELETE", "")):
            answer = await client.request(method, f"{other}/{asked['id']}{path}")
            assert problem(answer) == (404, "unknown-approval")
        assert (await client.get(other)).json() == {"approvals": []}


async def test_what_has_expired_is_gone(console: Console, postgres: AsyncEngine) -> None:
    asked = await ask(console)
    async with postgres.begin() as connection:
        await connection.execute(update(approval).values(expires_ms=0))
    assert await listed(console) == []
    assert problem(await call(console, "POST", f"/{asked['id']}/approve", BEN)) == (404, "unknown-approval")
    await ask(console)
    async with postgres.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(approval)) == 1, "the expired one is deleted"


async def test_an_event_has_so_many_pending_requests_at_most(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 2)
    together = await asyncio.gather(*(call(console, "POST", "", ANA, REFUND) for _ in range(10)))
    asked = [answer.json() for answer in together if answer.status_code == 201]
    assert len(asked) == 2, "also of those who ask at once"
    assert problem(await call(console, "POST", "", ANA, REFUND)) == (409, "too-many-approvals")
    await call(console, "POST", f"/{asked[0]['id']}/refuse", BEN)
    await ask(console)


@pytest.mark.parametrize(
    "changes",
    [
        {"body": '{"rate_per_s":5}'},
        {"body": '{"reason":"  "}'},
        {"body": '{"reason":"why","unknown":1}'},
        {"body": '{"reason":"' + "x" * 501 + '"}'},
        {"body": "[]"},
        {"body": '{"reason":"why"' + " " * 16_400 + "}"},
        {"control": "open_room"},
        {"control": "close_room", "body": '{"reason":"why"}'},
        {"control": "reset_room", "body": "{}"},
        {"idempotency_key": "a key"},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
async def test_what_no_service_would_take_or_nobody_could_judge_is_refused(
    console: Console, changes: dict[str, str]
) -> None:
    answer = await call(console, "POST", "", KEYS["admin"], REFUND | changes)
    assert problem(answer) == (422, "invalid-request")


async def test_every_screen_is_told_also_those_of_another_process(console: Console, start: Start) -> None:
    async with start(admin_keys=PEOPLE, two_persons="refund_event") as other, other.stream() as stream:
        assert (await next_of(stream, "snapshot"))["approvals"] == []
        asked = await ask(console)
        assert await next_of(stream, "approvals") == [asked]
        await call(console, "POST", f"/{asked['id']}/approve", BEN)
        [told] = await next_of(stream, "approvals")
        assert (told["status"], told["decided_by"], told["call"]) == ("approved", "ben", None)
        async with console.stream() as later:
            assert (await next_of(later, "snapshot"))["approvals"] == [told]
        await call(console, "DELETE", f"/{asked['id']}", ANA)
        assert await next_of(stream, "approvals") == []
