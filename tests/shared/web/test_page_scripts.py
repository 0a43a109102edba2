"""Scripts of the pages outside a browser: what they send again and under which key, amounts, the check of a lottery."""

import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onsale.lottery_check import drawn_orders
from shared.rules.lottery_ranking import commitment
from tests.support.lotteries import NOON, published

WEB = Path(__file__).parents[3] / "web"
CLIENT = "fans/onsale.ts"
REFUSED = [409, {"type": "/problems/seats-taken"}]
PROOF_NEEDED = [403, {"type": "/problems/proof-of-work-needed", "challenge": {}}]
MINE = "Your number 34 got its place."
PLACE = {"lane": 0, "join_seq": 34, "rank": drawn_orders(published())[0].rank(34)}


def run(file: str, action: str, given: Any) -> Any:
    """What the page's script makes of it."""
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules/esbuild").is_dir():
        pytest.skip("node or its packages are not installed: npm ci in web/")
    script, asked = Path(__file__).with_name("page_scripts.mjs"), {"file": file, "action": action, "given": given}
    done = subprocess.run(
        [node, script, WEB], input=json.dumps(asked).encode(), capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_a_typed_amount_is_read_with_the_digits_of_its_currency_or_not_at_all() -> None:
    read = {
        ("12.34", "EUR"): 1234, ("12,3", "EUR"): 1230, (" 12 ", "EUR"): 1200, ("12.345", "EUR"): None,
        ("1200", "JPY"): 1200, ("1200.5", "JPY"): None, ("1.234", "KWD"): 1234, ("1e3", "EUR"): None,
        ("-5", "EUR"): None, ("", "EUR"): None, ("1234567890123", "EUR"): None,
    }  # fmt: skip
    assert run("money.ts", "minor", list(read)) == list(read.values())


def test_a_write_without_an_answer_is_sent_again_under_the_same_key() -> None:
    found = run(CLIENT, "write", [None, [503, {}], [200, {"reference": "R"}]])
    assert found["answer"] == {"reference": "R"}
    assert [request["key"] for request in found["requests"]] == ["k", "k", "k"]
    found = run(CLIENT, "write", [None, None, None, [200, {}]])
    assert (len(found["requests"]), found["answer"]["unknown"]) == (3, True), "nobody knows whether it was executed"


@pytest.mark.parametrize("answer", [REFUSED, [503, {"type": "/problems/line-full"}], [422, {}]])
def test_what_the_suite_refused_is_not_sent_again(answer: list[Any]) -> None:
    found = run(CLIENT, "write", [answer, [200, {}]])
    assert (len(found["requests"]), found["answer"]["unknown"]) == (1, False)


def test_an_order_names_the_price_that_was_quoted_and_has_the_key_of_its_reservation() -> None:
    quote, order = run(CLIENT, "order", [[200, {"total_minor": 4200, "currency": "EUR"}], [202, {}]])
    assert (quote["request"], order["request"]) == ("POST /orders/quote", "POST /orders")
    assert order["key"] == "checkout.held"
    assert (order["body"]["expected_total_minor"], order["body"]["currency"]) == (4200, "EUR")


def test_a_browser_solves_three_challenges_at_most() -> None:
    found = run(CLIENT, "join", [PROOF_NEEDED] * 9)
    assert (len(found["requests"]), found["answer"]["problem"]) == (4, "proof-of-work-needed")


FORGED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"seed": "00" * 32}, ["The secret is the one committed to.", MINE]),
    ({"seed": "00" * 32, "commitment": commitment(bytes(32))}, [MINE]),
    ({"public_value": "24,331.10"}, [MINE]),
    ({"committed_at": NOON}, ["The secret was committed to before entry opened."]),
    ({"closed_at": NOON - timedelta(seconds=1)}, ["Entry closed when it was to close, not before."]),
    ({"counted_at": NOON + timedelta(hours=2)}, ["The entrants were published before the value was known."]),
    ({"drawn_at": NOON + timedelta(minutes=59)}, ["It was drawn after the value was known."]),
    ({"algorithm": "another"}, ["It is drawn by the rules this page knows."]),
]


def test_the_pages_own_check_finds_what_is_wrong_with_a_lottery() -> None:
    documents = [published(**forged).model_dump(mode="json") for forged, _ in FORGED]
    found = run("fans/lottery_check.js", "check", [documents, PLACE])
    assert [[what for what, holds, _ in checks if holds is False] for checks in found] == [
        failed for _, failed in FORGED
    ]
