"""The Python client: problems are exceptions, and a request is sent again only if that is safe and helps.

`verify_webhook` accepts what the reference library of Standard Webhooks signs, and nothing else.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from onsale.client import Client, Operator, Problem, WebhookRefused, verify_webhook
from onsale.client.connection import NO_ANSWER

SOLD_OUT = {"type": "/problems/seats-taken", "title": "Taken.", "status": 409, "detail": "A-1-1 is taken.", "seats": []}
BUSY = httpx.Response(503, json={"type": "/problems/unavailable"}, headers={"retry-after": "0"})
Answers = Callable[[httpx.Request], httpx.Response]


class Suite:
    """Answers with the next of `answers`; an exception among them is raised."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self))

    @property
    def client(self) -> Client:
        return Client("http://suite", http=self.http)


async def test_a_problem_is_an_exception_with_everything_the_document_says() -> None:
    suite = Suite(httpx.Response(409, json=SOLD_OUT))
    with pytest.raises(Problem, match="A-1-1 is taken") as refused:
        await suite.client.hold("e", {"seats": ["A-1-1"]}, token="pass")
    problem = refused.value
    assert (problem.type, problem.slug, problem.status) == ("/problems/seats-taken", "seats-taken", 409)
    assert (problem.title, problem.detail, problem.retry_after_s) == ("Taken.", "A-1-1 is taken.", None)
    assert problem.members["seats"] == []
    assert len(suite.requests) == 1


async def test_an_answer_that_is_no_document_is_a_problem_too() -> None:
    suite = Suite(httpx.Response(502, text="<h1>Bad gateway</h1>"))
    with pytest.raises(Problem, match="HTTP 502") as refused:
        await suite.client.line("e")
    assert (refused.value.type, refused.value.status) == ("about:blank", 502)


async def test_a_busy_suite_is_asked_again_with_the_same_key() -> None:
    suite = Suite(BUSY, httpx.ConnectError("reset"), httpx.Response(202, json={"reference": "R"}))
    accepted = await suite.client.pay_again("R", {"payment": {"provider": "sandbox", "method": "ok"}})
    assert accepted["reference"] == "R"
    keys = {request.headers["idempotency-key"] for request in suite.requests}
    assert (len(suite.requests), len(keys)) == (3, 1)
    assert len(keys.pop()) == 36


async def test_a_fan_is_not_asked_for_more_patience_than_there_are_attempts() -> None:
    suite = Suite(*[BUSY] * 9)
    with pytest.raises(Problem) as refused:
        await suite.client.line("e")
    assert (refused.value.status, refused.value.retry_after_s, len(suite.requests)) == (503, 0, 5)


async def test_without_retry_after_a_request_is_not_sent_again() -> None:
    suite = Suite(httpx.Response(503))
    with pytest.raises(Problem, match="HTTP 503"):
        await suite.client.line("e")
    assert len(suite.requests) == 1


async def test_an_operators_write_without_a_key_is_sent_once() -> None:
    suite = Suite(httpx.ConnectError("reset"), BUSY)
    operator = Operator("http://suite", "key", http=suite.http)
    for status in (NO_ANSWER, 503):
        with pytest.raises(Problem) as refused:
            await operator.create_access_codes("e", {"lane": 1})
        assert refused.value.status == status
    assert len(suite.requests) == 2


async def test_what_an_answer_sets_is_not_sent_with_the_next_fans_request() -> None:
    with_cookie = httpx.Response(200, json={}, headers={"set-cookie": "onsale_queue=somebody; Path=/"})
    suite = Suite(with_cookie, httpx.Response(200, json={}))
    client = Client("http://suite")
    client._http._transport = httpx.MockTransport(suite)
    async with client:
        await client.join("e")
        await client.join("e")
    assert "cookie" not in suite.requests[1].headers


async def test_values_are_quoted_and_what_is_not_given_is_left_out() -> None:
    suite = Suite(httpx.Response(200, json={}), httpx.Response(200, json={}))
    await suite.client.seats("a/b", "A", page=2)
    await suite.client.prices("e", line=["100x2", "50x1"])
    assert [request.url.raw_path for request in suite.requests] == [
        b"/events/a%2Fb/sections/A/seats?page=2", b"/orders/events/e/prices?line=100x2&line=50x1"
    ]  # fmt: skip


async def test_a_stream_is_opened_again_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    first = httpx.Response(200, text='retry: 0\nid: 1.7\nevent: line\ndata: {"head_seq": 1}\n\n')
    second = httpx.Response(200, text='id: 1.8\nevent: line\ndata: {"head_seq": 2}\n\n')
    suite = Suite(first, httpx.ConnectError("reset"), BUSY, second)
    client = suite.client
    monkeypatch.setattr(client._rng, "uniform", lambda *_: 0.0)
    heads = []
    async for kind, frame in client.event_updates("e", token="t"):
        heads.append((kind, frame["head_seq"]))
        if len(heads) == 2:
            break
    assert heads == [("line", 1), ("line", 2)]
    assert [request.headers.get("last-event-id") for request in suite.requests] == [None, "1.7", "1.7", "1.7"]


async def test_a_refused_stream_is_a_problem() -> None:
    suite = Suite(httpx.Response(404, json={"type": "/problems/event-not-found"}))
    with pytest.raises(Problem) as refused:
        await anext(suite.client.event_updates("e"))
    assert refused.value.slug == "event-not-found"


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = '{"type": "order.confirmed", "data": {"reference": "7QK2M9TZ4HXA"}}'


def signed(body: str = BODY, *, at_s: float | None = None) -> dict[str, str]:
    at = datetime.fromtimestamp(int(at_s or time.time()), UTC)
    signature = Webhook(SECRET).sign("msg_1", at, body)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


@pytest.mark.parametrize("body", [BODY, BODY.encode()])
def test_a_signed_webhook_is_read(body: str | bytes) -> None:
    assert verify_webhook(SECRET, signed(), body)["data"]["reference"] == "7QK2M9TZ4HXA"


def test_one_of_several_signatures_and_names_in_any_case_are_enough() -> None:
    headers = {name.title(): value for name, value in signed().items()}
    headers["Webhook-Signature"] = f"v1,bm90IG91cnM= {headers['Webhook-Signature']}"
    assert verify_webhook(SECRET, headers, BODY)["type"] == "order.confirmed"


@pytest.mark.parametrize(
    ("changed", "late_s", "body"),
    [
        ({}, 0, BODY.replace("7QK2", "8QK2")),
        ({"webhook-id": "msg_2"}, 0, BODY),
        ({"webhook-signature": "v1,é"}, 0, BODY),
        ({"webhook-signature": ""}, 0, BODY),
        ({}, 400, BODY),
        ({}, -400, BODY),
    ],
    ids=["body", "id", "not ascii", "none", "old", "ahead"],
)
def test_what_was_changed_or_is_old_is_refused(changed: dict[str, str], late_s: int, body: str) -> None:
    headers = signed(at_s=time.time() - late_s) | changed
    with pytest.raises(WebhookRefused):
        verify_webhook(SECRET, headers, body)


def test_a_webhook_without_headers_is_refused() -> None:
    with pytest.raises(WebhookRefused):
        verify_webhook(SECRET, {}, BODY)
