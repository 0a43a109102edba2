"""Each check of bad input can fail: servers that answer wrongly, and readers that accept too much, are reported.

A little of the bad input of `make proof` that needs no suite: it finds nothing.

What a swarm's fan meets is judged: each kind of wrong answer is found.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from onsale import event_files
from onsale.client import Problem
from onsale.local.ports import HOST
from proof.bad_input.changed import files
from proof.bad_input.changed.credentials import ChangedCredentials, Credential, mutations
from proof.bad_input.changed.files import check_event_files
from proof.bad_input.changed.webhooks import ChangedWebhooks
from proof.bad_input.generated.answers import AnswerChecks
from proof.bad_input.generated.documents import Call
from proof.bad_input.raw.http_forms import FINAL, FORMS, HIDDEN, SMUGGLING
from proof.bad_input.raw.raw_http import Delivery, direct_faults, exchange, send_direct, suite_faults, through_faults
from proof.bad_input.sale import Findings
from proof.insistence import InsistentClient, Meetings, Unanswered
from shared.http.http1 import HttpClient, HttpResponse

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

PROBLEM = {"type": "/problems/x", "title": "t", "status": 404, "detail": "d", "request_id": None}
JSON, REFUSED = {"content-type": "application/json"}, {"content-type": "application/problem+json"}
ROOM = ("GET /admin/events/{event_id}/room", "operators")
EVENTS = ("GET /events", "fans")


def answer_of(status: int, body: Any, headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(status, headers, body if isinstance(body, bytes) else json.dumps(body).encode())


WRONG: dict[str, tuple[tuple[str, str], HttpResponse, str]] = {
    "a server error": (EVENTS, answer_of(500, {**PROBLEM, "status": 500}, REFUSED), "server error 500"),
    "overloaded": (EVENTS, answer_of(503, {**PROBLEM, "status": 503}, REFUSED), "server error 503"),
    "a status": (EVENTS, answer_of(404, PROBLEM, REFUSED), "status 404 is not documented"),
    "a body": (EVENTS, answer_of(200, {"events": 1}, JSON), "does not match its schema"),
    "no JSON": (EVENTS, answer_of(200, b"{", JSON), "is not JSON"),
    "a content type": (EVENTS, answer_of(200, b"x", {"content-type": "text/plain"}), "content type 'text/plain'"),
    "no problem": (EVENTS, answer_of(422, {"detail": "x"}, JSON), "not a problem document"),
    "another status": (EVENTS, answer_of(422, PROBLEM, REFUSED), "another status than 422"),
    "no pause": (EVENTS, answer_of(429, {**PROBLEM, "status": 429}, REFUSED), "429 without Retry-After"),
    "for nobody": (ROOM, answer_of(200, {}, JSON), "answered 200 to nobody, who may not have it"),
}


def call_of(label: str) -> Call:
    method, path = label.split()
    return Call(label, method, path, {}, "", {}, b"")


@pytest.mark.parametrize(("operation", "answer", "fault"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_a_fault(operation: tuple[str, str], answer: HttpResponse, fault: str) -> None:
    label, readers = operation
    faults = list(AnswerChecks(readers).faults(call_of(label), answer, "nobody"))  # type: ignore[arg-type]
    assert any(fault in each for each in faults), faults


def test_a_documented_answer_is_none() -> None:
    refused = answer_of(422, {**PROBLEM, "status": 422}, REFUSED)
    assert list(AnswerChecks("fans").faults(call_of(EVENTS[0]), refused, "nobody")) == []
    assert list(AnswerChecks("operators").faults(call_of(ROOM[0]), refused, "nobody")) == []


@asynccontextmanager
async def stub_server(answer: bytes) -> AsyncIterator[int]:
    """The port of a server that answers everything with these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ANSWERS: dict[str, tuple[bytes, str]] = {
    "a server error": (OK.replace(b"200 OK", b"500 Bad"), "a server error 500"),
    "two answers": (OK * 3, "more answers than requests"),
    "no HTTP": (b"hello", "what was answered is not HTTP"),
    "a part": (OK[:-1], "what was answered is not HTTP"),
}


@pytest.mark.parametrize(("answer", "fault"), ANSWERS.values(), ids=ANSWERS)
async def test_a_stub_that_answers_wrongly_to_raw_bytes_is_reported(answer: bytes, fault: str) -> None:
    data = FORMS["length and chunks"] + FINAL
    async with stub_server(answer) as port:
        received, _ = await exchange(port, data, Delivery())
    assert any(fault in each for each in suite_faults(FINAL if answer == OK * 3 else data, received, all_read=True))


def echo(number: int, path: bytes = b"/a") -> bytes:
    body = b'{"number":%d,"method":"GET","path":"%b","body":0}' % (number, path)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def request_of(number: int, body: int | None = 0, path: str = "/a") -> dict[str, object]:
    return {"number": number, "method": "GET", "path": path, "body": body}


def test_a_server_that_finds_a_hidden_request_is_reported() -> None:
    data = SMUGGLING["length and chunks"] + FINAL
    seen = [{**request_of(1), "method": "POST"}, request_of(2, path=HIDDEN.decode())]
    assert direct_faults(data, echo(1) + echo(2), seen, all_read=True) == ["the app got a request that is not clear"]
    assert direct_faults(FINAL, echo(1), [request_of(1)], all_read=True) == []
    assert direct_faults(FINAL, echo(2), [request_of(1)], all_read=True) == ["an answer to another request"]
    assert direct_faults(FINAL, echo(1), [], all_read=True) == ["an answer without a request"]
    assert direct_faults(FINAL, b"", [request_of(1)], all_read=True) == ["a request without an answer"]


def test_only_a_refused_head_may_lack_a_body() -> None:
    data, refused = b"HEAD /a b HTTP/1.1\r\nHost: a\r\n\r\n", OK.replace(b"200 OK", b"400 Bad")
    without = refused.removesuffix(b"ok")
    for head, answer, good in ((True, without, True), (True, refused, True), (False, without, False)):
        sent = data if head else data.replace(b"HEAD", b"GET")
        assert (direct_faults(sent, answer, [], all_read=True) == []) == good
        assert (suite_faults(sent, answer, all_read=True) == []) == good
        assert (through_faults(sent, answer, [], echo(9, b"/victim"), b"/victim", all_read=True) == []) == good


def test_a_proxy_that_disagrees_about_the_end_of_a_request_is_reported() -> None:
    def faults(received: bytes, *seen: dict[str, object], again: bytes = b"/victim") -> list[str]:
        return through_faults(FINAL, received, list(seen), echo(9, again), b"/victim", all_read=True)

    assert faults(echo(1), request_of(1)) == []
    assert faults(echo(1), request_of(1), request_of(2)) == ["our server saw more requests than the proxy answered"]
    assert faults(echo(1), request_of(1), request_of(2, body=None)) == []
    assert faults(echo(2), request_of(1)) == ["an answer to another request"]
    assert faults(echo(1), request_of(1), again=b"/another") == ["the next fan got another answer"]
    assert faults(OK.replace(b"200", b"502")) == ["a server error 502"]


def test_a_proxy_may_refuse_a_head_with_a_body_and_our_server_may_not() -> None:
    head = FINAL.replace(b"GET", b"HEAD", 1)
    refused = b"HTTP/1.1 408 Request Time-out\r\nConnection: close\r\n\r\n<html>\n</html>\n"

    def faults(*seen: dict[str, object]) -> list[str]:
        return through_faults(head, refused, list(seen), echo(9, b"/victim"), b"/victim", all_read=True)

    assert faults() == []
    assert faults({**request_of(1), "method": "HEAD"}) != []


@pytest.mark.parametrize(("answer", "expected"), [(OK, True), (OK.replace(b"200 OK", b"401 No"), False)])
async def test_an_accepted_changed_credential_is_reported(answer: bytes, expected: bool) -> None:
    found, credential = Findings(), Credential("pass", "abc.def.ghi", "/x")
    async with stub_server(answer) as port, HttpClient() as client:
        suite: Any = SimpleNamespace(url=f"http://{HOST}:{port}")
        await ChangedCredentials(suite, found, Random(1), client).send_all([credential], seconds=0.3)
    assert ("pass: a changed credential is answered 200" in found.faults) == expected
    assert found.counts["mutated tokens"] > 5


def test_every_single_character_is_changed_and_the_algorithm_too() -> None:
    text = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhIn0.c2ln"
    changed = set(mutations(text, Random(1))) - {text}
    assert {text[:at] for at in range(len(text))} <= changed
    replaced = {next(at for at in range(len(text)) if one[at] != text[at]) for one in changed if len(one) == len(text)}
    assert len(replaced) > len(text) - 5
    assert any(one.endswith(".") and len(one.split(".")) == 3 for one in changed), "no signature"


@pytest.mark.parametrize("status", [200, 500])
async def test_a_webhook_that_is_accepted_without_a_signature_is_reported(tmp_path: Path, status: int) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"sandbox_webhook": "k1:secret"}))
    transport = httpx.MockTransport(lambda request: httpx.Response(status))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as browser:
        found, suite = Findings(), SimpleNamespace(data_dir=tmp_path)
        changed = ChangedWebhooks(suite, found, Random(1), browser)  # type: ignore[arg-type]
        counts = iter((0, 1, 1))

        async def stored() -> int:
            return next(counts)

        changed._stored = stored  # type: ignore[method-assign]
        await changed.send_all("ORDER")
    assert f"webhooks: a webhook without a valid signature is answered {status}" in found.faults
    assert "webhooks: a webhook without a valid signature was stored" in found.faults


def crash(*_: object) -> None:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    ("action", "fault"),
    [(crash, "KeyError in crash"), (lambda: event_files.read(Path("/nowhere")), None), (lambda: None, None)],
)
def test_a_reader_that_breaks_is_reported(action: Callable[[], Any], fault: str | None) -> None:
    found = Findings()
    files._expect_refusal(found, "event files", action, b"x")
    assert list(found.faults) == ([f"event files: {fault}"] if fault else [])


def test_every_damage_changes_the_backup(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    (backup / "orders").mkdir(parents=True)
    (backup / "orders" / "a.gz").write_bytes(b"abc")
    (backup / "orders" / "b.gz").write_bytes(b"defg")
    (backup / "manifest.json").write_text(json.dumps({"schemas": [{"tables": [{"file": "orders/a.gz"}]}]}))
    names = set()
    for name, damage in files.damages(backup, Random(1)):
        copy = files._copy(backup, tmp_path)
        damage(copy)
        assert content_of(copy) != content_of(backup), name
        names.add(name)
    assert len(names) > 15


def content_of(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_fault_is_printed_when_it_is_found_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = Findings()
    for example in "ab":
        found.add("our server", "a server error 500", example)
    assert capsys.readouterr().out == "  found: our server: a server error 500\n"
    assert found.sentences("again") == ["our server: a server error 500. a Again: again"]


SEED = int(os.environ.get("ONSALE_HYPOTHESIS_SEED", "1"))


def test_changed_event_files_are_refused(tmp_path: Path) -> None:
    found = Findings()
    check_event_files(found, tmp_path, Random(SEED), count=40)
    assert found.counts["mutated files"] > 20
    assert found.sentences(f"seed {SEED}") == []


async def test_raw_bytes_are_answered_once_and_by_http() -> None:
    found = Findings()
    await send_direct(found, seconds=1, random=Random(SEED))
    assert found.counts["raw requests"] >= 6  # one a lane, on a machine however slow
    assert found.sentences(f"seed {SEED}") == []


async def test_what_fans_meet_is_judged() -> None:
    """A fan asks again after no answer and after 503; a 500 and two answers to one key are found."""
    meetings, answers = Meetings(), list[httpx.Response | Exception]()

    def answer(_: httpx.Request) -> httpx.Response:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    def held(name: str) -> httpx.Response:
        return httpx.Response(201, json={"reservation_id": name})

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    client = InsistentClient("http://suite", meetings, http=http, rng=random.Random(1))
    answers[:] = [httpx.ConnectError("reset"), httpx.Response(503), httpx.Response(500), held("R1")]
    assert (await client.hold("e", {"seats": ["A-1-1"]}))["reservation_id"] == "R1"
    assert len(meetings.found) == 1
    assert meetings.found[0].startswith("hold was answered 500 ")
    assert meetings.longest_silence_s(0.0, time.monotonic()) > 0.3
    twice = InsistentClient("http://suite", meetings, http=http, repeats=True)
    answers[:] = [held("R1"), held("R1"), held("R1"), held("R2")]
    for _ in range(2):
        await twice.hold("e", {"seats": ["A-1-1"]})
    assert meetings.found[1:] == ["hold: one key, two answers: [['R1'], ['R2']]"]
    answers[:] = [httpx.Response(409)]
    with pytest.raises(Problem):
        await client.hold("e", {"seats": ["A-1-1"]})
    meetings.deadline_s, answers[:] = 0.0, [httpx.Response(503)]
    with pytest.raises(Unanswered):
        await client.hold("e", {"seats": ["A-1-1"]})
