"""A rehearsal as the console runs it: who may start one, when it is refused, what its process is given and how it ends.

The simulator is stood in for by a script that says what a test wants; the journey of a real one is in
`tests/journeys/console`.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from starlette.datastructures import URL

from features.console import rehearsals
from features.console.cli.rehearse import copy_of
from features.console.schemas import OfferedProviders
from features.console.tests.admin import EVENT, FILE, Admin
from features.console.tests.conftest import KEYS, Console, Start
from services.queue.state import State as QueueState
from shared.contracts.event_file import EventFile
from shared.postgres.pages import PageRequest
from tests.support.running.services import TEST
from tests.support.running.suite import problem
from tests.support.wait import wait_until

PATH = f"/console/api/events/{EVENT}/rehearsal"
WANTED = {"fans": 200, "reason": "the night before"}
COPY = f"{EVENT}-rehearsal"
RESULT: dict[str, Any] = {
    "fans": 200, "seconds": 9.5, "joined": 200, "called": 200, "held": 190, "bought": 180, "gave_up": 10,
    "empty_handed": 0, "tickets_sold": 300, "capacity": 400, "oversold": 0, "inversions": 0, "duplicate_numbers": 0,
    "wait_p50_s": 1.5, "wait_p95_s": 3.0, "invariants": 29, "broken": [], "failures": [],
}  # fmt: skip
BEGINNING = [{"copy_id": COPY, "left_out": ["the lottery"]}, {"progress": {"joined": 70}}]
SCRIPT = """
import json, os, sys
folder = {folder!r}
given = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}}
open(folder + "/given.json", "w").write(json.dumps(given))
for line in {lines!r}:
    print(line, flush=True)
if {waits!r}:
    sys.stdin.buffer.read()
    open(folder + "/ended", "w").close()
sys.stderr.write({error!r})
sys.exit({code!r})
"""


class Stand:
    """Stands in for the simulator."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch

    def says(self, *documents: Any, waits: bool = False, error: str = "", code: int = 0) -> None:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in documents]
        script = self._folder / "simulator.py"
        script.write_text(SCRIPT.format(folder=str(self._folder), lines=lines, waits=waits, error=error, code=code))
        self._monkeypatch.setattr(rehearsals, "COMMAND", (sys.executable, str(script)))

    @property
    def given(self) -> dict[str, Any]:
        """Its arguments, environment and process id; empty before it has started."""
        file = self._folder / "given.json"
        return dict(json.loads(file.read_text() or "{}")) if file.exists() else {}

    @property
    def ended_by_itself(self) -> bool:
        return (self._folder / "ended").exists()


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(tmp_path, monkeypatch)


async def state_of(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get(PATH)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def ended(client: httpx.AsyncClient) -> dict[str, Any]:
    """The rehearsal once it runs no more."""

    async def over() -> bool:
        return bool((await state_of(client))["state"] != "running")

    await wait_until(over, timeout_s=30)
    return await state_of(client)


async def copy_is_known(client: httpx.AsyncClient) -> bool:
    return bool((await state_of(client))["copy_id"] == COPY)


async def who_closed(admin: Admin) -> list[str]:
    """Who closed the copy's room."""
    queue = await admin.neighbours.real_queue.open()
    page = await queue.operations.audit_log(COPY, PageRequest(URL("http://queue"), None, 10))
    return [entry.actor for entry in page.changes if entry.action == "close"]


async def copy_made(queue: QueueState) -> None:
    """The simulator has applied it."""
    await queue.rooms.apply(FILE.model_copy(update={"event_id": COPY}), TEST)


@pytest.fixture(autouse=True)
def copy(admin: Admin) -> None:
    admin.neighbours.real_queue.begins_with.append(copy_made)


async def start_one(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json=WANTED)
    assert answer.status_code == 202, answer.text


async def test_a_rehearsal_is_started_followed_and_removed(console: Console, admin: Admin, stand: Stand) -> None:
    stand.says(*BEGINNING, {"result": RESULT})
    async with console.client(KEYS["admin"]) as client, console.client() as viewer:
        assert problem(await viewer.get(PATH)) == (404, "no-rehearsal")
        await start_one(client)
        found = await ended(viewer)
        assert (found["state"], found["result"], found["copy_id"]) == ("done", RESULT, COPY)
        assert (found["started_by"], found["reason"], found["left_out"]) == (
            "admin-1",
            WANTED["reason"],
            ["the lottery"],
        )
        assert found["ended_at"] > found["started_at"]
        assert (await client.delete(PATH)).status_code == 204
        assert await who_closed(admin) == ["admin-1"]
        assert problem(await client.get(PATH)) == (404, "no-rehearsal")


async def test_the_operators_authority_is_in_the_environment_alone_and_ends(
    console: Console, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONSALE_SERVICE_KEYS", "secret")
    stand.says({"result": RESULT})
    async with console.client(KEYS["admin"]) as client:
        await start_one(client)
        await ended(client)
        given = stand.given
        authority = given["environment"]["ONSALE_ADMIN_KEY"]
        assert authority.startswith("operator.")
        assert authority not in " ".join(given["arguments"])
        assert not {name for name in given["environment"] if name.startswith("ONSALE_")} - {"ONSALE_ADMIN_KEY"}
        assert given["arguments"][:3] == [EVENT, "--fans", "200"]
    async with console.client(authority) as simulator:
        session = (await simulator.get("/console/session")).json()
        assert (session["name"], session["role"]) == ("admin-1", "admin")


@pytest.mark.parametrize("body", [{"fans": 0}, {"fans": 20_001}, {"reason": ""}, {"speed": 2}])
async def test_a_rehearsal_has_limits(console: Console, stand: Stand, body: dict[str, Any]) -> None:
    stand.says({"result": RESULT})
    async with console.client(KEYS["admin"]) as client:
        assert problem(await client.post(PATH, json=WANTED | body)) == (422, "invalid-request")
        assert not stand.given


async def test_only_an_admin_starts_and_removes_one(console: Console, stand: Stand) -> None:
    stand.says({"result": RESULT})
    for role in ("viewer", "operator"):
        async with console.client(KEYS[role]) as client:
            assert problem(await client.post(PATH, json=WANTED)) == (403, "not-allowed")
            assert problem(await client.delete(PATH)) == (403, "not-allowed")
    assert not stand.given


@pytest.mark.parametrize("providers", [("stripe",), ("sandbox", "stripe")])
async def test_it_is_refused_if_money_could_be_real(
    console: Console, admin: Admin, stand: Stand, providers: tuple[str, ...]
) -> None:
    offered = [{"name": name, "methods": []} for name in providers]
    admin.given["orders", "providers"] = OfferedProviders.model_validate({"providers": offered})
    async with console.client(KEYS["admin"]) as client:
        refused = await client.post(PATH, json=WANTED)
        assert problem(refused) == (409, "payment-is-real")
        assert "stripe" in refused.json()["detail"]
        assert not stand.given


async def test_it_is_refused_without_a_simulator(
    console: Console, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    async with console.client(KEYS["admin"]) as client:
        assert problem(await client.post(PATH, json=WANTED)) == (503, "no-simulator")


async def test_one_runs_at_a_time_whichever_console_is_asked(start: Start, stand: Stand) -> None:
    stand.says(*BEGINNING, waits=True)
    async with (
        start() as first, start() as second,
        first.client(KEYS["admin"]) as here, second.client(KEYS["admin"]) as there,
    ):  # fmt: skip
        await start_one(here)
        other_event = await here.post(PATH.replace(EVENT, "another"), json=WANTED)
        assert problem(other_event) == (409, "rehearsal-runs"), "a console runs one"
        assert problem(await there.post(PATH, json=WANTED)) == (409, "rehearsal-runs"), "an event has one"
        await wait_until(lambda: copy_is_known(there), timeout_s=10)
        assert (await state_of(there))["progress"] == {"joined": 70}
        assert (await there.delete(PATH)).status_code == 204
        assert stand.ended_by_itself, "it closed its copy"
        assert problem(await here.get(PATH)) == (404, "no-rehearsal")
        await start_one(there)


async def test_one_that_fails_says_why(console: Console, stand: Stand) -> None:
    stand.says(error="onsale: There is no such event.\n", code=2)
    async with console.client(KEYS["admin"]) as client:
        await start_one(client)
        found = await ended(client)
        assert (found["state"], found["detail"]) == ("failed", "There is no such event.")
        stand.says(*BEGINNING, "no JSON", waits=True)
        await start_one(client)
        found = await ended(client)
        assert (found["state"], found["detail"]) == ("failed", "It ended without a result.")
        stand.says("x" * 300_000, waits=True)
        await start_one(client)
        assert (await ended(client))["state"] == "failed"


async def test_one_that_takes_too_long_is_stopped(start: Start, stand: Stand) -> None:
    stand.says(*BEGINNING, waits=True)
    async with start(rehearsal_max_s=1) as console, console.client(KEYS["admin"]) as client:
        await start_one(client)
        found = await ended(client)
        assert (found["state"], found["detail"]) == ("stopped", "It took longer than 1 s.")
        assert stand.ended_by_itself


async def test_a_process_that_does_not_stop_is_killed(
    console: Console, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.says(*BEGINNING, waits=True)
    monkeypatch.setattr(rehearsals, "STOP_WITHIN_S", 0.3)
    async with console.client(KEYS["admin"]) as client:
        await start_one(client)
        await wait_until(lambda: stand.given, timeout_s=10)
        found = psutil.Process(stand.given["pid"])
        found.suspend()
        assert (await client.delete(PATH)).status_code == 204
        assert not found.is_running()


async def test_a_console_that_stops_takes_its_rehearsal_with_it(start: Start, stand: Stand) -> None:
    stand.says(*BEGINNING, waits=True)
    async with start() as other, other.client() as viewer:
        async with start() as console, console.client(KEYS["admin"]) as client:
            await start_one(client)
            await wait_until(lambda: stand.given, timeout_s=10)
        assert stand.ended_by_itself
        assert not psutil.pid_exists(stand.given["pid"])
        found = await state_of(viewer)
        assert (found["state"], found["detail"]) == ("stopped", "The console that ran it has stopped.")


async def test_a_rehearsal_whose_console_died_is_lost_and_can_be_removed(
    console: Console, admin: Admin, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.says(*BEGINNING, waits=True)
    monkeypatch.setattr(rehearsals, "EACH_S", 60.0)
    records = console.app.state.deps.rehearsals._records
    async with console.client(KEYS["admin"]) as client:
        await start_one(client)
        view = await records.read(EVENT)
        await records.write(view.model_copy(update={"copy_id": COPY}))
        await records.unmark(EVENT)  # as it would expire
        assert (await state_of(client))["state"] == "lost"
        assert (await client.delete(PATH)).status_code == 204
        assert await who_closed(admin) == ["admin-1"]


def test_a_copy_sells_price_types_of_lanes_to_whoever_comes() -> None:
    floor = {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 3000}
    event = EventFile.model_validate({
        "event_id": "club", "name": "Club", "venue": "Hall", "currency": "EUR", "starts_at": "2030-01-01T20:00:00Z",
        "sections": [floor],
        "price_types": [
            {"type_id": "adult", "name": "Adult"}, {"type_id": "early", "name": "Early fan", "lanes": [1], "quota": 4},
        ],
    })  # fmt: skip
    copied, left_out = copy_of(event, "club-rehearsal")
    assert [(kind.lanes, kind.quota) for kind in copied.price_types] == [([], None), ([], 4)]
    assert left_out[0] == "the lanes of price types: whoever came may buy these"
