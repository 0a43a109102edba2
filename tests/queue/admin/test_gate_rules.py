"""Who sends the visitors of a protected site, and their passes, to another site: an admin, or two of them."""

import httpx
import pytest
from fastapi import FastAPI

from tests.queue.conftest import EVENT_URL, ROOM_URL, credentials, event_file, put_event
from tests.support.running.suite import problem

OURS = {"waiting_room": "https://tickets.example", "return_to": ["https://shop.example"]}
ELSEWHERE: tuple[dict[str, object], ...] = (
    {**OURS, "waiting_room": "https://evil.example"},
    {**OURS, "return_to": ["https://shop.example", "https://evil.example"]},
    {"return_to": ["https://shop.example"]},
    {},
)
OPERATOR, ADMIN = credentials("operator"), credentials("admin")


@pytest.fixture
async def room(admin: httpx.AsyncClient) -> httpx.AsyncClient:
    assert (await put_event(admin, gate=OURS)).status_code == 201
    return admin


async def rules(client: httpx.AsyncClient) -> dict[str, object]:
    gate = (await client.get(EVENT_URL)).json()["gate"]
    return {name: gate[name] for name in OURS}


@pytest.mark.parametrize("gate", ELSEWHERE)
async def test_an_operator_alone_sends_visitors_to_no_other_site(room: httpx.AsyncClient, gate: dict) -> None:
    patched = await room.patch(ROOM_URL, json={"gate": gate, "rate_per_s": 7}, headers=OPERATOR)
    assert problem(patched) == (403, "not-allowed")
    assert problem(await room.post(f"{ROOM_URL}/gate", json={"gate": gate}, headers=OPERATOR)) == (403, "not-allowed")
    assert await rules(room) == OURS
    assert (await room.get(ROOM_URL)).json()["rate_per_s"] == 1000, "nothing of a refused change is done"
    assert (await room.patch(ROOM_URL, json={"gate": gate}, headers=ADMIN)).status_code == 200


async def test_an_operator_changes_the_other_rules(room: httpx.AsyncClient) -> None:
    gate = {**OURS, "let_through": ["/up"], "on_engine_error": "admit"}
    assert (await room.patch(ROOM_URL, json={"gate": gate}, headers=OPERATOR)).status_code == 200
    assert (await room.get(EVENT_URL)).json()["gate"]["let_through"] == ["/up"]


@pytest.mark.parametrize("gate", ELSEWHERE)
async def test_where_it_needs_two_persons_no_way_around_them_is_left(
    room: httpx.AsyncClient, app: FastAPI, gate: dict
) -> None:
    app.state.settings = app.state.settings.model_copy(update={"two_persons": frozenset({"change_gate"})})
    file = event_file(gate=gate).model_dump(mode="json")
    for answer in (
        await room.post(f"{ROOM_URL}/gate", json={"gate": gate}, headers=ADMIN),
        await room.patch(ROOM_URL, json={"gate": gate}, headers=ADMIN),
        await room.put(EVENT_URL, json=file, headers=ADMIN),
        await room.put(f"{EVENT_URL}?dry_run=true", json=file, headers=ADMIN),
    ):
        assert problem(answer) == (403, "second-person-needed")
        assert answer.json()["control"] == "change_gate"
    assert await rules(room) == OURS
    same = event_file(gate=OURS, rate_per_s=5).model_dump(mode="json")
    assert (await room.put(EVENT_URL, json=same, headers=ADMIN)).status_code == 200


async def test_an_admin_replaces_the_rules(room: httpx.AsyncClient) -> None:
    gate = {**OURS, "return_to": ["https://other.example"]}
    changed = await room.post(f"{ROOM_URL}/gate", json={"gate": gate, "reason": "moved"}, headers=ADMIN)
    assert (changed.status_code, await rules(room)) == (200, gate)
    latest = (await room.get(f"{EVENT_URL}/changes?page_size=1")).json()["changes"][0]
    assert (latest["actor"], latest["reason"]) == ("ann", "moved")
