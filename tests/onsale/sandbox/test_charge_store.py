"""The sandbox's charge store survives a restart and a kill, and refuses a damaged file.

Webhooks of the sandbox: signatures, duplicates, order and retries.

Charges of the payment sandbox: idempotency keys, declines, delayed and failing answers, pages.

The sandbox refuses requests during a simulated outage or rate limit, values out of bounds and invalid calls. Each
payment method of the sandbox moves money as it promises: once, twice, later or back.
"""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onsale.sandbox.__main__ import main
from onsale.sandbox.charge import StoreDamaged
from onsale.sandbox.charges import ChargeStore
from onsale.sandbox.settings import looks_like_card_number
from shared.http.outgoing import NotReached, ResponseLost
from tests.onsale.sandbox_client import SandboxClient, error_code, sandbox
from tests.support.running.serving import serving
from tests.support.wait import wait_until


async def test_a_full_charge_store_refuses_charges_and_a_reset_empties_it(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(charges_max=2, books_path=books_path) as client:
        await client.charged(key="1")
        assert error_code(await client.charge("double_success", key="2")) == "books_full"
        assert len(await client.list_charges()) == 1
        await client.http.post("/control", json={"reset": True})
        assert await client.list_charges() == []
        fresh = await client.charged(key="1")
    async with sandbox(books_path=books_path) as client:
        assert await client.list_charges() == [fresh]


async def test_a_late_success_comes_although_the_sandbox_restarts_first(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path, late_after_s=0.3) as client:
        charge = await client.charged("late_success")
        refunded = await client.charged(key="2")
        await client.refund(refunded, 100)
    async with sandbox(books_path=books_path) as client:
        assert (await client.read_charge(charge))["status"] == "processing"
        await client.wait_for_status(charge, "succeeded")
        assert (await client.charge("late_success")).json() == charge
        assert (await client.refund(refunded, 100)).headers["Idempotency-Replayed"] == "true"
        assert (await client.read_charge(refunded))["refunded_minor"] == 100


async def test_a_truncated_last_line_is_dropped_and_any_other_damage_prevents_the_start(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path) as client:
        await client.charged()
    line = books_path.read_bytes()
    books_path.write_bytes(line + line[: len(line) // 2])
    store = ChargeStore(path=books_path, charges_max=10)
    assert len(store) == 1
    store.close()
    assert books_path.read_bytes() == line
    books_path.write_bytes(line[: len(line) // 2] + b"\n" + line)
    with pytest.raises(StoreDamaged, match="line 1"):
        ChargeStore(path=books_path, charges_max=10)


@contextmanager
def sandbox_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The sandbox as a process on a free port, and its address; it is killed afterwards."""
    command = [sys.executable, "-m", "onsale.sandbox", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().rpartition(" ")[2].strip()
        finally:
            process.kill()


async def test_a_killed_sandbox_loses_no_charge_and_a_stopped_one_waits_for_no_answer(tmp_path: Path) -> None:
    options = ("--books", str(tmp_path / "books.jsonl"))
    with sandbox_process(*options) as (process, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            client = SandboxClient(http)
            await asyncio.gather(*(client.charge(key=str(number)) for number in range(50)))
            http.timeout = httpx.Timeout(0.2)
            with pytest.raises(httpx.ReadTimeout):
                await client.charge("timeout_after_success", key="hung")
            http.timeout = httpx.Timeout(5)
            before = await client.list_charges()
            process.kill()
    assert [charge["status"] for charge in before] == ["succeeded"] * 51
    with sandbox_process(*options) as (process, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            client = SandboxClient(http)
            assert await client.list_charges() == before
            assert (await client.charge("timeout_after_success", key="hung")).status_code == 200
            hanging = asyncio.create_task(client.charge("timeout_after_success", key="hanging"))

            async def booked() -> bool:
                return len(await client.list_charges()) == 52

            await wait_until(booked)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 5)
            await asyncio.gather(hanging, return_exceptions=True)
            assert process.stderr is not None
            assert process.stderr.read() == "", "after a second it would cancel what it waits for, and say so"


def test_a_sandbox_that_cannot_start_prints_the_reason_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("{}\n{}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = str(taken.getsockname()[1])
        for option, value in (
            ("--books", str(damaged)),
            ("--webhook-url", "ftp://x"),
            ("--port", "99999"),
            ("--port", used),
        ):
            assert main(["--port", "0", option, value]) == 2
            error = capsys.readouterr().err
            assert (error.startswith("sandbox: "), error.count("\n")) == (True, 1)


async def test_duplicate_webhooks_carry_the_same_event_three_times(client: SandboxClient) -> None:
    await client.charged("duplicate_webhooks")
    await wait_until(lambda: len(client.shop.received) == 3)
    assert len({event["id"] for event in client.shop.events()}) == 1


async def test_reordered_webhooks_report_success_before_processing(client: SandboxClient) -> None:
    charge = await client.charged("reordered_webhooks")
    assert charge["status"] == "succeeded"
    await wait_until(lambda: client.shop.event_types() == ["charge.succeeded", "charge.processing"])
    events = client.shop.events()
    assert [event["data"]["charge"]["status"] for event in events] == ["succeeded", "processing"]
    assert events[0]["created_at"] > events[1]["created_at"]


async def test_a_webhook_is_retried_until_the_shop_answers_2xx_and_at_most_eight_times(client: SandboxClient) -> None:
    client.shop.answers = [500, 302, 404, NotReached("refused"), ResponseLost("reset")]
    await client.charged(key="1")
    await wait_until(lambda: len(client.shop.received) == 6)
    assert len({body for _, body in client.shop.received}) == 1
    client.shop.answers = [500] * 100
    await client.charged(key="2")

    async def one_webhook_is_lost() -> bool:
        health: dict[str, Any] = (await client.http.get("/healthz")).json()
        return health == {"status": "ok", "charges": 2, "webhooks_waiting": 0, "webhooks_lost": 1}

    await wait_until(one_webhook_is_lost)
    assert len(client.shop.received) == 6 + 8


async def test_only_so_many_webhooks_are_on_their_way_at_once() -> None:
    async with sandbox(webhook_senders=3) as client:
        client.shop.open.clear()
        for key in "abcdefgh":
            await client.charged(key=key)
        await wait_until(lambda: len(client.shop.received) == 3)
        assert (await client.http.get("/healthz")).json()["webhooks_waiting"] == 8
        assert len(client.shop.received) == 3
        client.shop.open.set()
        await wait_until(lambda: len(client.shop.received) == 8)
        assert all(client.shop.signed_rightly())


async def test_all_webhooks_go_over_the_same_few_connections() -> None:
    callers: list[int] = []

    async def receive(request: Request) -> Response:
        assert request.client is not None
        assert request.headers["content-type"] == "application/json"
        assert (await request.json())["type"] == "charge.succeeded"
        callers.append(request.client.port)
        return Response(status_code=204)

    shop = Starlette(routes=[Route("/hook", receive, methods=["POST"])])
    async with serving(shop) as port, sandbox(webhook_url=f"http://127.0.0.1:{port}/hook", webhook_senders=2) as client:
        for key in "abcdef":
            await client.charged("duplicate_webhooks", key=key)
        await wait_until(lambda: len(callers) == 18)
    assert len(set(callers)) <= 2


async def test_waiting_webhooks_are_limited_and_dropped_ones_are_counted() -> None:
    async with sandbox(webhooks_waiting_max=2) as client:
        await client.http.post("/control", json={"deliver_late_s": 60})
        for key in "abcde":
            await client.charged(key=key)
        health = (await client.http.get("/healthz")).json()
    assert (health["webhooks_waiting"], health["webhooks_lost"]) == (2, 3)


async def test_a_forged_webhook_has_a_wrong_signature(client: SandboxClient) -> None:
    await client.http.post("/control", json={"forge_webhook": {"data": {"charge": {"id": "x"}}}})
    await wait_until(lambda: client.shop.received)
    assert client.shop.signed_rightly() == [False]
    (forged,) = client.shop.events()
    assert (forged["type"], forged["data"]) == ("charge.succeeded", {"charge": {"id": "x"}})
    assert forged["id"].startswith("evt_")


async def test_a_charge_succeeds_is_listed_and_is_sent_as_a_webhook_signed_over_its_raw_bytes(
    client: SandboxClient,
) -> None:
    charge = await client.charged(token="tok_visa")
    assert (charge["status"], charge["captured_minor"], charge["amount_minor"]) == ("succeeded", 9350, 9350)
    assert charge["failure_reason"] is charge["checkout_url"] is None
    assert await client.list_charges(reference="order-1") == [charge]
    await wait_until(lambda: client.shop.received)
    assert client.shop.signed_rightly() == [True]
    (sent,) = client.shop.events()
    assert (sent["type"], sent["data"]) == ("charge.succeeded", {"charge": charge})


async def test_an_idempotency_key_returns_the_same_charge_and_refuses_another_body(client: SandboxClient) -> None:
    first = await client.charge(metadata={"a": 1, "b": 2})
    again = await client.charge(metadata={"b": 2, "a": 1})
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
    assert "Idempotency-Replayed" not in first.headers
    assert again.content == first.content
    other = await client.charge(amount_minor=1, metadata={"a": 1, "b": 2})
    assert (other.status_code, error_code(other)) == (409, "idempotency_key_reused")
    assert len(await client.list_charges()) == 1


async def test_a_hundred_simultaneous_calls_with_one_key_make_one_charge(client: SandboxClient) -> None:
    answers = await asyncio.gather(*(client.charge("slow") for _ in range(100)))
    assert sorted(answer.status_code for answer in answers) == [200] * 99 + [201]
    assert len({answer.content for answer in answers}) == len(await client.list_charges()) == 1


async def test_a_decline_fails_with_a_reason_and_cannot_be_cancelled_or_refunded(client: SandboxClient) -> None:
    charge = await client.charged("decline")
    assert (charge["status"], charge["failure_reason"], charge["captured_minor"]) == ("failed", "card_declined", 0)
    assert error_code(await client.cancel(charge)) == "already_failed"
    assert error_code(await client.refund(charge, 1)) == "not_succeeded"
    await wait_until(lambda: client.shop.event_types() == ["charge.failed"])


@pytest.mark.parametrize("method", ["slow", "timeout_after_success"])
async def test_a_charge_is_listed_before_its_delayed_answer_comes(method: str) -> None:
    async with sandbox(slow_s=5, hang_s=5) as client:
        request = asyncio.create_task(client.charge(method))
        await wait_until(client.list_charges)
        assert not request.done()
        repeat = await client.charge(method)
        assert repeat.json()["status"] == (await client.list_charges())[0]["status"] == "succeeded"
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)


async def test_delayed_answers_come_in_the_end(client: SandboxClient) -> None:
    began = time.monotonic()
    assert (await client.charged("slow", key="1"))["status"] == "succeeded"
    assert (await client.charged("timeout_after_success", key="2"))["status"] == "succeeded"
    assert time.monotonic() - began >= 0.1


async def test_error_then_ok_fails_twice_for_each_key_and_charges_nothing_meanwhile(client: SandboxClient) -> None:
    for key in ("a", "b"):
        answers = [await client.charge("error_then_ok", key=key) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [503, 503, 201, 200]
    assert len(await client.list_charges()) == 2


async def test_pages_list_every_charge_once_from_the_first_to_the_last(client: SandboxClient) -> None:
    ids = [(await client.charged(key=str(number), reference=f"o-{number}"))["id"] for number in range(7)]
    newest = (await client.http.get("/charges", params={"limit": 3})).json()
    assert [charge["id"] for charge in newest["charges"]] == ids[4:]
    assert newest["has_more"]
    listed: list[str] = []
    params: dict[str, Any] = {"limit": 3, "since": "2020-01-01T00:00:00+01:00"}
    while True:
        page = (await client.http.get("/charges", params=params)).json()
        listed += [charge["id"] for charge in page["charges"]]
        params["since"] = listed[-1]
        if not page["has_more"]:
            break
    assert listed == ids
    third = (await client.http.get("/charges", params={"limit": 3})).json()["charges"][0]
    assert [charge["id"] for charge in await client.list_charges(since=third["created_at"])] == ids[4:]


async def test_a_dispute_withdraws_the_money_until_it_is_won(client: SandboxClient) -> None:
    charge = await client.charged()
    path = f"/charges/{charge['id']}/dispute"
    assert error_code(await client.http.post(path, json={"status": "won"})) == "no_open_dispute"
    too_much = {"status": "open", "amount_minor": charge["amount_minor"] + 1}
    assert error_code(await client.http.post(path, json=too_much)) == "dispute_exceeds_charge"
    opened = (await client.http.post(path, json={"status": "open"})).json()["dispute"]
    assert (opened["status"], opened["withdrawn_minor"]) == ("open", charge["amount_minor"])
    assert error_code(await client.http.post(path, json={"status": "open"})) == "already_disputed"
    assert error_code(await client.refund(charge, 1)) == "refund_exceeds_charge"
    won = (await client.http.post(path, json={"status": "won"})).json()["dispute"]
    assert (won["id"], won["status"], won["withdrawn_minor"]) == (opened["id"], "won", 0)
    assert (await client.refund(charge, 1)).status_code == 201
    await wait_until(lambda: client.shop.event_types()[1:3] == ["charge.disputed", "charge.dispute_closed"])


async def test_an_inquiry_withdraws_nothing(client: SandboxClient) -> None:
    charge = await client.charged()
    asked = await client.http.post(f"/charges/{charge['id']}/dispute", json={"status": "open", "inquiry": True})
    assert asked.json()["dispute"]["withdrawn_minor"] == 0
    assert (await client.list_charges())[0]["dispute"] == asked.json()["dispute"]


async def test_an_outage_and_a_rate_limit_refuse_charges_until_they_end(client: SandboxClient) -> None:
    await client.http.post("/control", json={"down_for_s": 60})
    during_outage = await client.charge()
    assert (during_outage.status_code, error_code(during_outage)) == (503, "unavailable")
    assert 0 < int(during_outage.headers["Retry-After"]) <= 60
    assert (await client.http.get("/healthz")).status_code == 200
    await client.http.post("/control", json={"down_for_s": 0, "rate_limit_per_s": 2})
    answers = [await client.charge(key=str(number)) for number in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) >= 1
    await client.http.post("/control", json={"rate_limit_per_s": 0})
    assert len(await client.list_charges()) == 2


INVALID: dict[str, list[Any]] = {
    "amount_minor": [0, "9350", 10**13],
    "currency": ["eur", "EUE", "XXX"],
    "method": ["gold"],
    "reference": ["", "a\u0000b"],
    "return_url": ["javascript:alert(1)"],
    "metadata": [{"late_after_s": -1}, {"late_after_s": "soon"}, {str(number): 1 for number in range(21)}],
    "surprise": [1],
    "token": ["4242424242424242", "4000 0566 5566 5556", "card:4000-0566-5566-5556"],
}


@pytest.mark.parametrize("field", INVALID)
async def test_an_invalid_charge_is_refused_without_repeating_its_values_and_charges_nothing(
    client: SandboxClient, field: str
) -> None:
    for value in INVALID[field]:
        refused = await client.charge(**{field: value})
        assert refused.status_code == 422, value
        assert len(str(value)) < 5 or str(value) not in refused.text
    assert await client.list_charges() == []


def test_tokens_with_digits_are_not_mistaken_for_card_numbers() -> None:
    for token in ("tok_visa", "tok_1234567890", "0f8fad5b-d9cb-469f-a165-70867728950e", "tok_4242424242424241"):
        assert not looks_like_card_number(token)


async def test_invalid_calls_are_refused(client: SandboxClient) -> None:
    assert (await client.http.post("/charges", json={})).status_code == 400
    assert (await client.charge(key="k" * 256)).status_code == 400
    headers = {"Idempotency-Key": "k"}
    assert (await client.http.post("/charges", content=b"{", headers=headers)).status_code == 422
    assert (await client.http.post("/charges", content=b" " * 65_537, headers=headers)).status_code == 413
    for path in ("/charges/ch_none", "/nothing", "/charges?since=ch_none"):
        answer = await client.http.get(path)
        assert (answer.status_code, "code" in answer.json()["error"]) == (404, True)
    for query in ("limit=0", "limit=x", "limit=-1", "since=yesterday"):
        assert (await client.http.get(f"/charges?{query}")).status_code == 422
    assert (await client.http.delete("/charges")).status_code == 405
    assert (await client.http.post("/control", json={"explode": True})).status_code == 422


async def test_a_late_success_has_the_time_it_happened_and_takes_its_delay_from_metadata(client: SandboxClient) -> None:
    charge = await client.charged("late_success", key="1")
    assert (charge["status"], charge["captured_minor"]) == ("processing", 0)
    late = await client.wait_for_status(charge, "succeeded")
    assert late["captured_minor"] == 9350
    assert late["occurred_at"] > charge["occurred_at"]
    await wait_until(lambda: sorted(client.shop.event_types()) == ["charge.processing", "charge.succeeded"])
    delayed_an_hour = await client.charged("late_success", key="2", metadata={"late_after_s": 3600})
    assert (await client.read_charge(delayed_an_hour))["status"] == "processing"


async def test_cancelling_a_charge_prevents_its_late_success(client: SandboxClient) -> None:
    charge = await client.charged("late_success", key="1")
    cancelled = (await client.cancel(charge)).json()
    assert cancelled["status"] == "cancelled"
    assert (await client.cancel(charge)).json() == cancelled
    later = await client.charged("late_success", key="2", metadata={"late_after_s": 0.05})
    await client.wait_for_status(later, "succeeded")
    assert await client.read_charge(charge) == cancelled


async def test_success_after_cancel_succeeds_only_once_it_is_cancelled(client: SandboxClient) -> None:
    not_cancelled = await client.charged("success_after_cancel", key="1")
    charge = await client.charged("success_after_cancel", key="2")
    assert (await client.cancel(charge)).json()["status"] == "cancelled"
    assert (await client.wait_for_status(charge, "succeeded"))["captured_minor"] == 9350
    assert (await client.read_charge(not_cancelled))["status"] == "processing"
    await wait_until(lambda: client.shop.event_types().count("charge.succeeded") == 1)
    refused = await client.cancel(charge)
    assert (refused.status_code, error_code(refused)) == (409, "already_succeeded")


async def test_a_double_success_charges_twice_under_two_ids(client: SandboxClient) -> None:
    charge = await client.charged("double_success")
    first, second = await client.list_charges(reference="order-1")
    assert (first, second["id"] == first["id"]) == (charge, False)
    assert (second["idempotency_key"], second["status"]) == ("order-1:1#double", "succeeded")
    assert (await client.charge("double_success")).json() == charge
    assert len(await client.list_charges()) == 2
    assert (await client.refund(second, 9350)).status_code == 201
    assert (await client.read_charge(first))["refunded_minor"] == 0


async def test_a_refund_may_fail_once_is_idempotent_and_never_exceeds_the_charge(client: SandboxClient) -> None:
    charge = await client.charged("refund_fails_once")
    assert (await client.refund(charge, 9000)).status_code == 502
    assert (await client.read_charge(charge))["refunded_minor"] == 0
    refunded = await client.refund(charge, 9000)
    assert (refunded.status_code, refunded.json()["status"]) == (201, "succeeded")
    again = await client.refund(charge, 9000)
    assert (again.status_code, again.content) == (200, refunded.content)
    assert error_code(await client.refund(charge, 9001)) == "idempotency_key_reused"
    assert error_code(await client.refund(charge, 351, key="refund-2")) == "refund_exceeds_charge"
    assert (await client.refund(charge, 350, key="refund-3")).status_code == 201
    after = await client.read_charge(charge)
    assert after == charge | {"refunded_minor": 9350}
    refunds = (await client.http.get(f"/charges/{charge['id']}/refunds")).json()["refunds"]
    assert [refund["amount_minor"] for refund in refunds] == [9000, 350]
    await wait_until(lambda: client.shop.event_types().count("charge.refunded") == 2)


async def test_an_authorisation_is_captured_once_or_voided(client: SandboxClient) -> None:
    captured, voided = [await client.charged(key=key, capture=False) for key in ("1", "2")]
    assert (captured["status"], captured["captured_minor"]) == ("succeeded", 0)
    assert error_code(await client.refund(captured, 1)) == "not_succeeded"
    for _ in range(2):
        assert (await client.http.post(f"/charges/{captured['id']}/capture")).json()["captured_minor"] == 9350
    assert (await client.cancel(voided)).json()["status"] == "cancelled"
    assert error_code(await client.http.post(f"/charges/{voided['id']}/capture")) == "not_succeeded"


@pytest.mark.parametrize(("choice", "status"), [("pay", "succeeded"), ("decline", "failed"), ("cancel", "cancelled")])
async def test_the_hosted_page_applies_the_first_choice_only_and_returns_to_the_shop(
    client: SandboxClient, choice: str, status: str
) -> None:
    charge = await client.charged("redirect", return_url="http://shop/o/1?a=%22%3E&b=<i>")
    assert charge["status"] == "requires_action"
    page = await client.http.get(charge["checkout_url"])
    assert all(text in page.text for text in (">Pay<", ">Decline<", ">Cancel<", "EUR 93.50"))
    pressed = await client.choose(charge, choice)
    assert (pressed.status_code, pressed.headers["Location"]) == (303, "http://shop/o/1?a=%22%3E&b=%3Ci%3E")
    after = await client.read_charge(charge)
    assert (after["status"], after["checkout_url"]) == (status, None)
    await client.choose(charge, "pay")
    assert await client.read_charge(charge) == after
    used = (await client.http.get(charge["checkout_url"])).text
    assert ("b=&lt;i&gt;" in used, "<button" in used) == (True, False)


async def test_a_return_url_shows_the_hosted_page_for_any_method_and_pay_runs_that_method(
    client: SandboxClient,
) -> None:
    charge = await client.charged("late_success", return_url="http://shop/back")
    assert charge["status"] == "requires_action"
    assert not client.shop.received
    assert (await client.choose(charge, "steal")).status_code == 422
    await client.choose(charge, "pay")
    assert (await client.read_charge(charge))["status"] == "processing"
    await client.wait_for_status(charge, "succeeded")
