"""Every example of the pages about client libraries and webhooks runs, as it is printed, against the suite."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onsale.client import Client, Fan, Operator, verify_webhook
from tests.support.programs import need
from tests.support.providers.receiver import Received, webhook_receiver
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

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
