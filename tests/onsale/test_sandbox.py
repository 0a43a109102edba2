"""The sandbox provider misbehaves exactly as it says, and never loses or repeats money it does not admit to."""

import asyncio
import hashlib
import hmac
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from onsale.sandbox import SandboxSettings, create_sandbox
from onsale.sandbox.__main__ import main
from onsale.sandbox.books import Books
from onsale.sandbox.problems import BooksDamaged
from onsale.sandbox.schemas import looks_like_card_number
from tests.support.wait import wait_until

SECRET = "a secret for tests"
QUICK: dict[str, Any] = {
    "webhook_url": "http://shop/webhooks/sandbox",
    "webhook_secret": SECRET,
    "slow_s": 0.05,
    "hang_s": 0.05,
    "late_after_s": 0.02,
    "reorder_gap_s": 0.02,
    "webhook_retry_delays_s": (0.005,) * 7,
}


class Shop:
    """The receiving end of webhooks; `answers` are the statuses it gives first, 200 after that."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.received: list[tuple[str, bytes]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.received.append((request.headers["Sandbox-Signature"], request.content))
        return httpx.Response(self.answers.pop(0) if self.answers else 200)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.received]

    def heard(self) -> list[str]:
        return [event["type"] for event in self.events()]


class Fan:
    """Calls the sandbox as the suite would."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.shop = Shop()

    async def charge(self, method: str = "ok", *, key: str = "order-1:1", **changes: Any) -> httpx.Response:
        body = {"reference": "order-1", "amount_minor": 9350, "currency": "EUR", "method": method, **changes}
        return await self.http.post("/charges", json=body, headers={"Idempotency-Key": key})

    async def charged(self, method: str = "ok", **changes: Any) -> dict[str, Any]:
        answer = await self.charge(method, **changes)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def refund(self, charge: dict[str, Any], amount_minor: int, *, key: str = "refund-1") -> httpx.Response:
        body, headers = {"amount_minor": amount_minor}, {"Idempotency-Key": key}
        return await self.http.post(f"/charges/{charge['id']}/refunds", json=body, headers=headers)

    async def books(self, **asked: Any) -> list[dict[str, Any]]:
        return list((await self.http.get("/charges", params=asked)).json()["charges"])

    async def now(self, charge: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.http.get(f"/charges/{charge['id']}")).json())

    async def settled(self, charge: dict[str, Any], status: str) -> dict[str, Any]:
        async def reached() -> bool:
            return bool((await self.now(charge))["status"] == status)

        await wait_until(reached)
        return await self.now(charge)


@asynccontextmanager
async def sandbox(**changes: Any) -> AsyncIterator[Fan]:
    shop: list[Shop] = []
    receiver = httpx.MockTransport(lambda request: shop[0].answer(request))
    app = create_sandbox(SandboxSettings(**{**QUICK, **changes}), webhook_transport=receiver)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://provider") as http,
    ):
        fan = Fan(http)
        shop.append(fan.shop)
        yield fan


@pytest.fixture
async def fan() -> AsyncIterator[Fan]:
    async with sandbox() as fan:
        yield fan


def error_code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


async def test_a_charge_succeeds_is_in_the_books_and_is_told_with_a_signature_over_the_raw_bytes(fan: Fan) -> None:
    charge = await fan.charged(token="tok_visa")
    assert charge["status"] == "succeeded"
    assert charge["captured_minor"] == charge["amount_minor"] == 9350
    assert charge["failure_reason"] is charge["checkout_url"] is None
    assert await fan.books(reference="order-1") == [charge]
    await wait_until(lambda: fan.shop.received)
    header, body = fan.shop.received[0]
    stamp, mac = (part.split("=")[1] for part in header.split(","))
    assert hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() == mac
    assert abs(time.time() - int(stamp)) < 60
    (told,) = fan.shop.events()
    assert told["type"] == "charge.succeeded"
    assert told["data"] == {"charge": charge}


async def test_a_key_answers_the_same_charge_and_refuses_another_body(fan: Fan) -> None:
    first = await fan.charge(metadata={"a": 1, "b": 2})
    again = await fan.charge(metadata={"b": 2, "a": 1})
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
    assert "Idempotency-Replayed" not in first.headers
    assert again.content == first.content
    other = await fan.charge(amount_minor=1, metadata={"a": 1, "b": 2})
    assert (other.status_code, error_code(other)) == (409, "idempotency_key_reused")
    assert len(await fan.books()) == 1


async def test_three_hundred_simultaneous_calls_with_one_key_make_one_charge(fan: Fan) -> None:
    answers = await asyncio.gather(*(fan.charge("slow") for _ in range(300)))
    assert sorted(answer.status_code for answer in answers) == [200] * 299 + [201]
    assert len({answer.content for answer in answers}) == len(await fan.books()) == 1


async def test_a_replay_repeats_the_first_answer_although_the_charge_moved_on(fan: Fan) -> None:
    first = await fan.charge("late_success")
    await fan.settled(first.json(), "succeeded")
    assert (await fan.charge("late_success")).content == first.content


async def test_a_decline_fails_with_a_reason_and_cannot_be_cancelled_or_refunded(fan: Fan) -> None:
    charge = await fan.charged("decline")
    assert (charge["status"], charge["failure_reason"]) == ("failed", "card_declined")
    assert charge["captured_minor"] == 0
    assert error_code(await fan.http.post(f"/charges/{charge['id']}/cancel")) == "already_failed"
    assert error_code(await fan.refund(charge, 1)) == "not_succeeded"
    await wait_until(lambda: fan.shop.heard() == ["charge.failed"])


@pytest.mark.parametrize("method", ["slow", "timeout_after_success"])
async def test_a_charge_is_in_the_books_before_its_delayed_answer_comes(method: str) -> None:
    async with sandbox(slow_s=5, hang_s=5) as fan:
        waiting = asyncio.create_task(fan.charge(method))
        await wait_until(fan.books)
        assert not waiting.done()
        repeat = await fan.charge(method)
        assert repeat.json()["status"] == (await fan.books())[0]["status"] == "succeeded"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_delayed_answers_come_in_the_end(fan: Fan) -> None:
    began = time.monotonic()
    assert (await fan.charged("slow", key="1"))["status"] == "succeeded"
    assert (await fan.charged("timeout_after_success", key="2"))["status"] == "succeeded"
    assert time.monotonic() - began >= 0.1


async def test_an_error_comes_twice_for_each_key_and_books_nothing(fan: Fan) -> None:
    for key in ("a", "b"):
        answers = [await fan.charge("error_then_ok", key=key) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [503, 503, 201, 200]
    assert len(await fan.books()) == 2


async def test_duplicate_webhooks_carry_the_same_event_three_times(fan: Fan) -> None:
    await fan.charged("duplicate_webhooks")
    await wait_until(lambda: len(fan.shop.received) == 3)
    assert len({event["id"] for event in fan.shop.events()}) == 1


async def test_reordered_webhooks_tell_of_the_success_before_the_processing(fan: Fan) -> None:
    charge = await fan.charged("reordered_webhooks")
    assert charge["status"] == "succeeded"
    await wait_until(lambda: fan.shop.heard() == ["charge.succeeded", "charge.processing"])
    told = fan.shop.events()
    assert [event["data"]["charge"]["status"] for event in told] == ["succeeded", "processing"]
    assert told[0]["created_at"] > told[1]["created_at"]


async def test_a_late_success_says_when_it_happened_and_takes_its_delay_from_metadata(fan: Fan) -> None:
    charge = await fan.charged("late_success", key="1")
    assert (charge["status"], charge["captured_minor"]) == ("processing", 0)
    late = await fan.settled(charge, "succeeded")
    assert late["captured_minor"] == 9350
    assert late["occurred_at"] > charge["occurred_at"]
    await wait_until(lambda: sorted(fan.shop.heard()) == ["charge.processing", "charge.succeeded"])
    for_ever = await fan.charged("late_success", key="2", metadata={"late_after_s": 3600})
    assert (await fan.now(for_ever))["status"] == "processing"


async def test_a_cancel_calls_a_late_success_off(fan: Fan) -> None:
    charge = await fan.charged("late_success", key="1")
    cancelled = (await fan.http.post(f"/charges/{charge['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    assert (await fan.http.post(f"/charges/{charge['id']}/cancel")).json() == cancelled
    await fan.settled(await fan.charged("late_success", key="2", metadata={"late_after_s": 0.05}), "succeeded")
    assert await fan.now(charge) == cancelled


async def test_a_success_comes_after_the_cancel_was_granted_and_not_without_one(fan: Fan) -> None:
    left = await fan.charged("success_after_cancel", key="1")
    charge = await fan.charged("success_after_cancel", key="2")
    cancelled = (await fan.http.post(f"/charges/{charge['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    assert (await fan.settled(charge, "succeeded"))["captured_minor"] == 9350
    assert (await fan.now(left))["status"] == "processing"
    await wait_until(lambda: fan.shop.heard().count("charge.succeeded") == 1)
    refused = await fan.http.post(f"/charges/{charge['id']}/cancel")
    assert (refused.status_code, error_code(refused)) == (409, "already_succeeded")


async def test_a_double_success_takes_the_money_twice_under_two_ids(fan: Fan) -> None:
    charge = await fan.charged("double_success")
    first, second = await fan.books(reference="order-1")
    assert first == charge
    assert second["id"] != first["id"]
    assert second["idempotency_key"] == "order-1:1#double"
    assert first["status"] == second["status"] == "succeeded"
    assert (await fan.charge("double_success")).json() == charge
    assert len(await fan.books()) == 2
    assert (await fan.refund(second, 9350)).status_code == 201
    assert (await fan.now(first))["refunded_minor"] == 0


async def test_a_refund_may_fail_once_is_idempotent_and_never_exceeds_the_charge(fan: Fan) -> None:
    charge = await fan.charged("refund_fails_once")
    assert (await fan.refund(charge, 9000)).status_code == 502
    assert (await fan.now(charge))["refunded_minor"] == 0
    refunded = await fan.refund(charge, 9000)
    assert (refunded.status_code, refunded.json()["status"]) == (201, "succeeded")
    again = await fan.refund(charge, 9000)
    assert (again.status_code, again.content) == (200, refunded.content)
    assert error_code(await fan.refund(charge, 9001)) == "idempotency_key_reused"
    assert error_code(await fan.refund(charge, 351, key="refund-2")) == "refund_exceeds_charge"
    assert (await fan.refund(charge, 350, key="refund-3")).status_code == 201
    now = await fan.now(charge)
    assert (now["status"], now["refunded_minor"], now["occurred_at"]) == ("succeeded", 9350, charge["occurred_at"])
    refunds = (await fan.http.get(f"/charges/{charge['id']}/refunds")).json()["refunds"]
    assert [refund["amount_minor"] for refund in refunds] == [9000, 350]
    await wait_until(lambda: fan.shop.heard().count("charge.refunded") == 2)


async def test_an_authorisation_is_captured_once_or_voided(fan: Fan) -> None:
    kept, given_up = [await fan.charged(key=key, capture=False) for key in ("1", "2")]
    assert (kept["status"], kept["captured_minor"]) == ("succeeded", 0)
    assert error_code(await fan.refund(kept, 1)) == "not_succeeded"
    for _ in range(2):
        assert (await fan.http.post(f"/charges/{kept['id']}/capture")).json()["captured_minor"] == 9350
    assert (await fan.http.post(f"/charges/{given_up['id']}/cancel")).json()["status"] == "cancelled"
    assert error_code(await fan.http.post(f"/charges/{given_up['id']}/capture")) == "not_succeeded"


@pytest.mark.parametrize(("choice", "status"), [("pay", "succeeded"), ("decline", "failed"), ("cancel", "cancelled")])
async def test_the_hosted_page_does_what_the_fan_presses_once_and_returns_to_the_shop(
    fan: Fan, choice: str, status: str
) -> None:
    charge = await fan.charged("redirect", return_url="http://shop/o/1?a=%22%3E&b=<i>")
    assert charge["status"] == "requires_action"
    page = await fan.http.get(charge["checkout_url"])
    assert all(word in page.text for word in (">Pay<", ">Decline<", ">Cancel<", "93.50 EUR"))
    pressed = await fan.http.post(charge["checkout_url"], data={"choice": choice})
    assert (pressed.status_code, pressed.headers["Location"]) == (303, "http://shop/o/1?a=%22%3E&b=%3Ci%3E")
    now = await fan.now(charge)
    assert (now["status"], now["checkout_url"]) == (status, None)
    await fan.http.post(charge["checkout_url"], data={"choice": "pay"})
    assert await fan.now(charge) == now
    used = (await fan.http.get(charge["checkout_url"])).text
    assert "b=&lt;i&gt;" in used
    assert "<button" not in used


async def test_a_return_url_makes_any_method_hosted_and_pay_does_what_the_method_does(fan: Fan) -> None:
    charge = await fan.charged("late_success", return_url="http://shop/back")
    assert charge["status"] == "requires_action"
    assert not fan.shop.received
    await fan.http.post(charge["checkout_url"], data={"choice": "pay"})
    assert (await fan.now(charge))["status"] == "processing"
    await fan.settled(charge, "succeeded")
    nonsense = await fan.http.post(charge["checkout_url"], data={"choice": "steal"})
    assert nonsense.status_code == 422


async def test_a_webhook_is_tried_again_until_the_shop_says_2xx_and_no_more_than_eight_times(fan: Fan) -> None:
    fan.shop.answers = [500, 302, 404]
    await fan.charged(key="1")
    await wait_until(lambda: len(fan.shop.received) == 4)
    assert len({body for _, body in fan.shop.received}) == 1
    fan.shop.answers = [500] * 100
    await fan.charged(key="2")

    async def lost() -> bool:
        health: dict[str, Any] = (await fan.http.get("/healthz")).json()
        return health == {"status": "ok", "charges": 2, "webhooks_waiting": 0, "webhooks_lost": 1}

    await wait_until(lost)
    assert len(fan.shop.received) == 4 + 8


async def test_waiting_webhooks_are_bounded_and_the_lost_are_counted() -> None:
    async with sandbox(webhooks_waiting_max=2) as fan:
        await fan.http.post("/control", json={"deliver_late_s": 60})
        for key in "abcde":
            await fan.charged(key=key)
        health = (await fan.http.get("/healthz")).json()
    assert (health["webhooks_waiting"], health["webhooks_lost"]) == (2, 3)


async def test_a_forged_webhook_has_a_signature_that_does_not_hold(fan: Fan) -> None:
    await fan.http.post(
        "/control", json={"forge_webhook": {"type": "charge.succeeded", "data": {"charge": {"id": "x"}}}}
    )
    await wait_until(lambda: fan.shop.received)
    header, body = fan.shop.received[0]
    stamp, mac = (part.split("=")[1] for part in header.split(","))
    assert hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() != mac
    (told,) = fan.shop.events()
    assert told["data"] == {"charge": {"id": "x"}}
    assert told["id"].startswith("evt_")


async def test_an_outage_and_a_rate_limit_refuse_everything_and_end(fan: Fan) -> None:
    await fan.http.post("/control", json={"down_for_s": 60})
    away = await fan.charge()
    assert (away.status_code, error_code(away)) == (503, "unavailable")
    assert 0 < int(away.headers["Retry-After"]) <= 60
    assert (await fan.http.get("/healthz")).status_code == 200
    await fan.http.post("/control", json={"down_for_s": 0, "rate_limit_per_s": 2})
    answers = [await fan.charge(key=str(number)) for number in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) >= 1
    await fan.http.post("/control", json={"rate_limit_per_s": 0})
    assert len(await fan.books()) == 2


async def test_pages_lead_from_the_first_charge_to_the_last_without_gap_or_repeat(fan: Fan) -> None:
    ids = [(await fan.charged(key=str(number), reference=f"o-{number}"))["id"] for number in range(7)]
    newest = (await fan.http.get("/charges", params={"limit": 3})).json()
    assert [charge["id"] for charge in newest["charges"]] == ids[4:]
    assert newest["has_more"]
    seen: list[str] = []
    asked: dict[str, Any] = {"limit": 3, "since": "2020-01-01T00:00:00+01:00"}
    while True:
        page = (await fan.http.get("/charges", params=asked)).json()
        seen += [charge["id"] for charge in page["charges"]]
        asked["since"] = seen[-1]
        if not page["has_more"]:
            break
    assert seen == ids
    third = (await fan.http.get("/charges", params={"limit": 3})).json()["charges"][0]
    assert [charge["id"] for charge in await fan.books(since=third["created_at"])] == ids[4:]


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_minor": 0},
        {"amount_minor": "9350"},
        {"amount_minor": 10**13},
        {"currency": "eur"},
        {"method": "gold"},
        {"reference": ""},
        {"reference": "a\u0000b"},
        {"return_url": "javascript:alert(1)"},
        {"metadata": {"late_after_s": -1}},
        {"metadata": {"late_after_s": "soon"}},
        {"metadata": {str(number): 1 for number in range(21)}},
        {"surprise": 1},
        {"token": "4242424242424242"},
        {"token": "4000 0566 5566 5556"},
        {"token": "card:4000-0566-5566-5556"},
    ],
    ids=str,
)
async def test_a_charge_out_of_bounds_is_refused_without_an_echo_and_books_nothing(
    fan: Fan, changes: dict[str, Any]
) -> None:
    refused = await fan.charge(**changes)
    assert refused.status_code == 422
    for value in changes.values():
        assert len(str(value)) < 5 or str(value) not in refused.text
    assert await fan.books() == []


def test_tokens_with_digits_are_not_mistaken_for_cards() -> None:
    for token in ("tok_visa", "tok_1234567890", "0f8fad5b-d9cb-469f-a165-70867728950e", "tok_4242424242424241"):
        assert not looks_like_card_number(token)


async def test_calls_that_make_no_sense_are_refused(fan: Fan) -> None:
    assert (await fan.http.post("/charges", json={})).status_code == 400
    assert (await fan.charge(key="k" * 256)).status_code == 400
    headers = {"Idempotency-Key": "k"}
    assert (await fan.http.post("/charges", content=b"{", headers=headers)).status_code == 422
    assert (await fan.http.post("/charges", content=b" " * 65_537, headers=headers)).status_code == 413
    for path in ("/charges/ch_none", "/nothing", "/charges?since=ch_none"):
        answer = await fan.http.get(path)
        assert (answer.status_code, "code" in answer.json()["error"]) == (404, True)
    for asked in ("limit=0", "limit=x", "limit=-1", "since=yesterday"):
        assert (await fan.http.get(f"/charges?{asked}")).status_code == 422
    assert (await fan.http.delete("/charges")).status_code == 405
    assert (await fan.http.post("/control", json={"explode": True})).status_code == 422


async def test_full_books_take_no_more_and_a_reset_empties_them(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(charges_max=2, books_path=books_path) as fan:
        await fan.charged(key="1")
        assert error_code(await fan.charge("double_success", key="2")) == "books_full"
        assert len(await fan.books()) == 1
        await fan.http.post("/control", json={"reset": True})
        assert await fan.books() == []
        fresh = await fan.charged(key="1")
    async with sandbox(books_path=books_path) as fan:
        assert await fan.books() == [fresh]


async def test_a_success_promised_before_a_restart_is_kept_after_it(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path, late_after_s=0.3) as fan:
        charge = await fan.charged("late_success")
        refunded = await fan.charged(key="2")
        await fan.refund(refunded, 100)
    async with sandbox(books_path=books_path) as fan:
        assert (await fan.now(charge))["status"] == "processing"
        await fan.settled(charge, "succeeded")
        assert (await fan.charge("late_success")).json() == charge
        assert (await fan.refund(refunded, 100)).headers["Idempotency-Replayed"] == "true"
        assert (await fan.now(refunded))["refunded_minor"] == 100


async def test_a_last_line_cut_short_is_dropped_and_any_other_damage_stops_the_start(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path) as fan:
        await fan.charged()
    line = books_path.read_bytes()
    books_path.write_bytes(line + line[: len(line) // 2])
    books = Books(path=books_path, charges_max=10)
    assert len(books) == 1
    books.close()
    assert books_path.read_bytes() == line
    books_path.write_bytes(line[: len(line) // 2] + b"\n" + line)
    with pytest.raises(BooksDamaged, match="line 1"):
        Books(path=books_path, charges_max=10)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command line on a free port, and its address; whatever is left of it is killed."""
    command = [sys.executable, "-m", "onsale.sandbox", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().rpartition(" ")[2].strip()
        finally:
            running.kill()


async def test_a_killed_process_loses_no_charge_and_a_stopped_one_ends_within_a_second(tmp_path: Path) -> None:
    books = ("--books", str(tmp_path / "books.jsonl"))
    with process(*books) as (running, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            fan = Fan(http)
            await asyncio.gather(*(fan.charge(key=str(number)) for number in range(50)))
            http.timeout = httpx.Timeout(0.2)
            with pytest.raises(httpx.ReadTimeout):
                await fan.charge("timeout_after_success", key="hung")
            http.timeout = httpx.Timeout(5)
            before = await fan.books()
            running.kill()
    assert [charge["status"] for charge in before] == ["succeeded"] * 51
    with process(*books) as (running, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            fan = Fan(http)
            assert await fan.books() == before
            assert (await fan.charge("timeout_after_success", key="hung")).status_code == 200
            hanging = asyncio.create_task(fan.charge("timeout_after_success", key="hanging"))

            async def booked() -> bool:
                return len(await fan.books()) == 52

            await wait_until(booked)
            began = time.monotonic()
            running.send_signal(signal.SIGTERM)
            await asyncio.to_thread(running.wait, 5)
            assert time.monotonic() - began < 1
            await asyncio.gather(hanging, return_exceptions=True)
            assert running.stderr is not None
            assert running.stderr.read() == ""


def test_a_start_that_cannot_work_says_why_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("{}\n{}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = str(taken.getsockname()[1])
        for arguments in (
            ["--books", str(damaged)],
            ["--webhook-url", "ftp://x"],
            ["--port", "99999"],
            ["--port", used],
        ):
            assert main(["--port", "0", *arguments]) == 2
            why = capsys.readouterr().err
            assert why.startswith("sandbox: ")
            assert why.count("\n") == 1
