"""Scripts of the pages outside a browser: what they send again and under which key, and amounts."""

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.gateway.api.queue import waiting_status
from services.gateway.waiting_line import snapshot
from services.gateway.waiting_line.snapshot import LineSnapshot, Polls
from services.gateway.waiting_line.wait_estimate import WaitEstimate
from shared.contracts.room_options import Lane, RoomOptions
from shared.security.tokens import QueueToken
from tests.gateway.frames import START_MS, lanes, line_frame

WEB = Path(__file__).parents[3] / "web"
CLIENT = "fans/onsale.ts"
REFUSED = [409, {"type": "/problems/seats-taken"}]
PROOF_NEEDED = [403, {"type": "/problems/proof-of-work-needed", "challenge": {}}]


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


OPENS_AT = datetime.fromtimestamp(START_MS / 1000 + 30, UTC)
LANES = [Lane(lane=0, name="General", weight=3), Lane(lane=1, name="Club", code_required=True, opens_at=OPENS_AT)]
LINES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({}, {"per_place_s": None, "reason": "slower", "at_ms": START_MS}),
    ({}, {"per_place_s": 0.02, "reason": "throttled", "at_ms": START_MS, "band": 0.7}),
    ({}, {"per_place_s": 90.0}),
    ({"state": "prequeue", "sale_starts_at_ms": START_MS + 90_000}, {"starts_at_ms": START_MS + 90_000}),
    ({"state": "prequeue"}, {}),
    ({"state": "paused", "message": "Back at nine."}, {"per_place_s": None, "reason": "paused", "at_ms": START_MS}),
    ({"lanes": lanes(_0=(2_000, 90_000), _1=(40, 90_000)), "options": RoomOptions(lanes=LANES)}, {}),
    ({"head": 0, "lottery": {"stage": "closed"}}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "estimated"), LINES)
@pytest.mark.parametrize("lane", [0, 1])
def test_a_page_computes_from_the_public_line_what_the_status_says(
    fields: dict[str, Any], estimated: dict[str, Any], lane: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "now_ms", lambda: START_MS)
    frame = line_frame(**{"head": 1_000, "tail": 90_000, **fields})
    if lane not in frame.lanes:
        return
    estimate = WaitEstimate(**{"per_place_s": 0.013, **estimated})
    line = LineSnapshot(frame, estimate=estimate, received_s=0.0, polls=Polls(2_000, 10_000, per_s=100))
    asked, told = [], []
    for seq in (9_000, 9_001, 20_011, 54_321, 89_999):
        for joined_s in (START_MS // 1000 - 5, START_MS // 1000 + 5):
            token = QueueToken("show", 1, lane, seq, "holder", joined_s)
            status = waiting_status(line, token, line.position(lane, seq))
            known = {"status": "waiting", "lane": lane, "join_seq": seq, "poll_after_ms": status["poll_after_ms"],
                     "heartbeat_after_ms": status["heartbeat_after_ms"]}  # fmt: skip
            asked.append([known, json.loads(line.body()), joined_s * 1000])
            told.append({"rank": None, "lane": lane, **status})
    for answer, expected in zip(run(CLIENT, "placeByLine", asked), told, strict=True):
        assert {"rank": None, **answer} == expected


def test_a_page_asks_for_its_status_where_the_public_line_does_not_tell_it() -> None:
    def read(**fields: Any) -> Any:
        polls = Polls(2_000, 10_000, per_s=fields.pop("per_s", 100))
        shown = LineSnapshot(line_frame(**{"head": 100, "tail": 90_000, **fields}),
                             estimate=WaitEstimate(0.1), received_s=0.0, polls=polls)  # fmt: skip
        return json.loads(shown.body())

    far = {"status": "waiting", "lane": 0, "join_seq": 50_000, "heartbeat_after_ms": 45_000, "poll_after_ms": 10_000}
    near = read()["near_places"]
    asked = [
        [far, read()], [far | {"join_seq": 101 + near}, read()],
        [far | {"join_seq": 100 + near}, read()], [far, read(per_s=100_000)], [far | {"status": "ready"}, read()],
        [far | {"heartbeat_after_ms": None}, read()], [far | {"lane": 2}, read()],
        [far | {"rank": None}, read(lottery={"stage": "drawn"})],
    ]  # fmt: skip
    computes = [answer is not None for answer in run(CLIENT, "placeByLine", asked)]
    assert computes == [True, True, *[False] * 6]
