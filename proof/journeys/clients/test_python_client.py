"""The Python client against the suite: a fan's whole way, what is refused, updates.

Every example of the pages about client libraries and webhooks runs, as it is printed, against the suite.
"""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from onsale.client import Client, Fan, Operator, Problem, verify_webhook
from onsale.client.fan_documents import CustomerDetails, Payment
from tests.support.programs import need
from tests.support.providers.receiver import Received, webhook_receiver
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

BUYER: CustomerDetails = {"name": "Ada Lovelace", "email": "ada@example.org"}
CARD: Payment = {"provider": "sandbox", "method": "ok"}


@pytest.fixture
async def client(suite: RunningSuite) -> AsyncIterator[Client]:
    async with Client(suite.url) as client:
        yield client


async def test_a_fan_gets_from_joining_to_tickets(suite: RunningSuite, client: Client) -> None:
    fan = Fan(client, await suite.open_event())
    place, seen = await fan.join(), list[str]()
    ended = await fan.wait(lambda now: seen.append(now["status"]))
    assert (place["join_seq"], ended["status"], seen[-1]) == (1, "ready", "ready")
    await fan.claim()
    held = await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]})
    order = await fan.order(held, BUYER, CARD)
    assert (await fan.order(held, BUYER, CARD))["reference"] == order["reference"]
    now = await fan.settled(order)
    assert (now["status"], now["total_minor"]) == ("confirmed", 8350)
    assert len((await fan.tickets(order))["tickets"]) == 2
    assert (await client.tickets_pdf(order["reference"], token=order["order_token"])).startswith(b"%PDF")
    assert await suite.wrong(fan.event_id) == []


async def test_what_the_suite_refuses_is_a_problem(suite: RunningSuite, client: Client) -> None:
    first, second = (Fan(client, event_id) for event_id in [await suite.open_event()] * 2)
    for fan in (first, second):
        await fan.join()
        await fan.wait()
        await fan.claim()
    await first.hold({"seats": ["A-1-1"]})
    with pytest.raises(Problem) as taken:
        await second.hold({"seats": ["A-1-1"]})
    assert (taken.value.status, taken.value.slug, taken.value.members["seats"]) == (409, "seats-taken", ["A-1-1"])
    with pytest.raises(Problem) as unknown:
        await client.event("nowhere")
    assert (unknown.value.status, unknown.value.type) == (404, "/problems/unknown-event")


async def test_updates_show_a_hold_of_somebody_else(suite: RunningSuite, client: Client) -> None:
    event_id = await suite.open_event()
    fan = Fan(client, event_id)
    await fan.join()
    await fan.wait()
    await fan.claim()
    left = []
    async with aclosing(client.event_updates(event_id, sections="GA1", token=fan.queue_token)) as updates:
        async for kind, frame in updates:
            if kind == "sections":
                left.append(frame["sections"][0]["available_seats"])
                if len(left) == 1:
                    await fan.hold({"ga": [{"section_id": "GA1", "quantity": 3}]})
                if left[-1] == 47:
                    break
    assert left[0] == 50


USE = Path(__file__).parents[3] / "docs" / "use"
PRINTS = {  # what tells that an example did its work, by words of its code
    "onsale.sections(": "left",
    "tickets(order)": r"order \w+ confirmed 2 tickets",
    "event_updates(": "{'",
    "operator.read_room(": r"\d+ orders",
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (USE / page).read_text(), re.S)


def run(suite: RunningSuite, folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "ADMIN_KEY": suite.admin_key},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expected(example: str) -> str:
    [words] = [pattern for code, pattern in PRINTS.items() if code in example]
    return words


@pytest.mark.parametrize("example", blocks("client-libraries.md", "python"), ids=range(4))
def test_an_example_in_python_runs(suite: RunningSuite, tmp_path: Path, example: str) -> None:
    shown = run(suite, tmp_path, sys.executable, "-P", "-c", example.replace("http://localhost:8000", suite.url))
    assert re.search(expected(example), shown), shown


def test_the_example_for_a_server_runs_in_node(suite: RunningSuite, tmp_path: Path) -> None:
    [script], [example] = blocks("client-libraries.md", "sh")[:1], blocks("client-libraries.md", "js")
    run(suite, tmp_path, "sh", "-ec", script.replace("http://localhost:8000", suite.url))
    (tmp_path / "shop.mjs").write_text(example.replace("http://localhost:8000", suite.url))
    shown = run(suite, tmp_path, need("nodejs"), "shop.mjs")
    assert re.search(expected(example), shown), shown


async def test_the_examples_of_verification_accept_a_webhook_of_the_suite(suite: RunningSuite, tmp_path: Path) -> None:
    async with webhook_receiver() as receiver, Client(suite.url) as client:
        event_id = await suite.open_event()
        async with Operator(suite.url, suite.admin_key) as operator:
            new = {
                "url": f"{receiver.url}/onsale",
                "event_id": event_id,
                "kinds": ["order.confirmed"],
                "reason": "test",
            }
            secret = (await operator.create_webhook_endpoint(new)).secret
            fan = Fan(client, event_id)
            await fan.join()
            await fan.wait()
            await fan.claim()
            held = await fan.hold({"seats": ["A-1-1"]})
            order = await fan.order(
                held, {"name": "Ada", "email": "ada@example.org"}, {"provider": "sandbox", "method": "ok"}
            )
            await wait_until(lambda: bool(receiver.received))
    webhook = receiver.received[0]
    assert webhook.verified(secret) == verify_webhook(secret, webhook.headers, webhook.body)
    assert verify_webhook(secret, webhook.headers, webhook.body)["data"]["reference"] == order["reference"]
    accepts_in_python(webhook, secret)
    accepts_in_node(suite, tmp_path, webhook, secret)


def accepts_in_python(webhook: Received, secret: str) -> None:
    [example] = blocks("webhooks.md", "python")
    names: dict[str, object] = {}
    exec(example, names)
    receive = names["receive"]
    assert callable(receive)
    assert receive(secret, webhook.headers, webhook.body.encode()) == 204
    assert receive(secret, webhook.headers, webhook.body.encode() + b" ") == 400


def accepts_in_node(suite: RunningSuite, folder: Path, webhook: Received, secret: str) -> None:
    [example] = blocks("webhooks.md", "js")
    (folder / "verify.mjs").write_text(example)
    (folder / "try.mjs").write_text(
        'import { verifyWebhook } from "./verify.mjs";\n'
        f"const [secret, headers, body] = [{secret!r}, {webhook.headers!r}, {webhook.body!r}];\n"
        "console.log(verifyWebhook(secret, headers, body).type);\n"
        'const old = { ...headers, "webhook-timestamp": "1700000000" };\n'
        'for (const [given, text] of [[headers, body + " "], [old, body], [{}, body]]) {\n'
        '  try { verifyWebhook(secret, given, text); console.log("accepted"); } catch { console.log("refused"); }\n}\n'
    )
    shown = run(suite, folder, need("nodejs"), "try.mjs")
    assert shown.split() == ["order.confirmed", "refused", "refused", "refused"]
