"""Verifying a published lottery: a forgery makes one check print NO and the exit code 1, and the page says so too."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from features.lottery.arithmetic import climb, commitment, leaf, path, receipt, root
from features.lottery.check import Evidence, check, drawn_orders
from features.lottery.contracts import EntryProof, PublishedLottery
from tests.shared.web.test_page_scripts import run
from tests.support.running.program import Command

SEED, BLIND, VALUE = b"s" * 32, b"b" * 32, "24,331.09"
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
LEAVES = [leaf(0, entry, receipt(BLIND, 0, entry, f"fan-{entry}")) for entry in range(1, 201)]


def published(**changes: Any) -> PublishedLottery:
    """A correct lottery with 200 entrants; `changes` replace published facts."""
    facts = {
        "event_id": "show", "epoch": 1, "stage": "drawn", "commitment": commitment(SEED),
        "committed_at": NOON - timedelta(days=3), "queue_opens_at": NOON - timedelta(hours=2),
        "rules": {"entry_closes_at": NOON, "public_value": {"what": "an index", "known_at": NOON + timedelta(hours=1)}},
        "closed_at": NOON + timedelta(seconds=1), "counted_at": NOON + timedelta(seconds=3),
        "entrants": {0: {"n": 200, "taken": 200, "hash": root(LEAVES).hex()}},
        "public_value": VALUE, "seed": SEED.hex(), "drawn_at": NOON + timedelta(hours=1, minutes=2),
    }  # fmt: skip
    return PublishedLottery.model_validate({**facts, **changes})


def proof(entry: int, **changes: Any) -> EntryProof:
    entry_receipt = receipt(BLIND, 0, entry, f"fan-{entry}")
    facts = {"event_id": "show", "epoch": 1, "lane": 0, "entry": entry, "entrants_n": 200, "receipt": entry_receipt,
             "path": path(LEAVES, entry - 1)}  # fmt: skip
    return EntryProof.model_validate({**facts, **changes})


# -- the checks --------------------------------------------------------------------------------------------------------


def failed_checks(lottery: PublishedLottery, evidence: Evidence) -> list[str]:
    return [row.statement for row in check(lottery, evidence) if row.holds is False]


PLACE = drawn_orders(published())[0].rank(34)
KNOWN = Evidence(entry=34, place=PLACE, public_value=VALUE, earlier=published(), proof=proof(34))


def test_an_honest_lottery_passes_every_check():
    assert failed_checks(published(), KNOWN) == []
    before = published(stage="closed", public_value=None, seed=None, drawn_at=None)
    assert failed_checks(before, Evidence(earlier=before)) == []
    assert failed_checks(published(), Evidence(earlier=before)) == []


SAME_COMMITMENT = "commitment and rules are those of the earlier document"
OTHER_RULES = {
    "entry_closes_at": NOON,
    "public_value": {"what": "a dice I throw", "known_at": NOON + timedelta(hours=1)},
}


@pytest.mark.parametrize(
    ("forged", "failed_check"),
    [
        ({"seed": "00" * 32}, "the seed is the one committed to"),
        ({"seed": "00" * 32, "commitment": commitment(bytes(32))}, SAME_COMMITMENT),
        ({"public_value": "24,331.10"}, "the public value is the one that became known"),
        ({"public_value": "24,331.10"}, f"entry 34 got place {PLACE}"),
        ({"entrants": {0: {"n": 201, "taken": 201, "hash": root(LEAVES).hex()}}}, "so are the entrants"),
        ({"entrants": {0: {"n": 200, "taken": 200, "hash": "11" * 32}}}, "entry 34 was counted with its owner"),
        ({"rules": OTHER_RULES}, SAME_COMMITMENT),
        ({"committed_at": NOON}, "the seed was committed to before entry opened"),
        ({"closed_at": NOON - timedelta(seconds=1)}, "entry closed when it was to close, not before"),
        ({"counted_at": NOON + timedelta(hours=2)}, "the entrants were published before the value was known"),
        ({"drawn_at": NOON + timedelta(minutes=59)}, "it was drawn after the value was known"),
        ({"epoch": 2}, "it is the lottery of the earlier document"),
        ({"algorithm": "another"}, "it is drawn by the rules we know"),
    ],
)  # fmt: skip
def test_a_forged_document_fails_the_check_it_concerns(forged: dict[str, Any], failed_check: str):
    assert failed_check in failed_checks(published(**forged), KNOWN)


def test_a_proof_for_another_entry_or_receipt_fails():
    assert failed_checks(published(), Evidence(proof=proof(34).model_copy(update={"entry": 35})))
    assert failed_checks(published(), Evidence(proof=proof(34, receipt="22" * 32)))
    assert climb(LEAVES[33], 33, 200, proof(34).path) == root(LEAVES).hex()


def test_the_command_prints_each_check_and_fails_for_a_forgery(onsale: Command, tmp_path: Path):
    honest_file, forged, proof_file = (tmp_path / name for name in ("honest.json", "forged.json", "mine.json"))
    honest_file.write_text(published().model_dump_json())
    forged.write_text(published(public_value="24,331.10").model_dump_json())
    proof_file.write_text(proof(34).model_dump_json())
    evidence = ("--entry", "34", "--place", str(PLACE), "--proof", str(proof_file))
    verified = onsale("lottery", "verify", str(honest_file), *evidence, "--public-value", VALUE)
    assert verified.returncode == 0
    assert "all 200 computed" in verified.stdout
    assert "NO" not in verified.stdout
    refused = onsale("lottery", "verify", str(forged), *evidence)
    assert refused.returncode == 1
    assert "NO" in refused.stdout
    shown = onsale("lottery", "show", str(honest_file))
    assert shown.returncode == 0
    assert PublishedLottery.model_validate_json(shown.stdout) == published()


def test_a_file_that_is_not_a_lottery_is_refused(onsale: Command, tmp_path: Path):
    (tmp_path / "other.json").write_text('{"event_id": "show"}')
    refused = onsale("lottery", "verify", str(tmp_path / "other.json"))
    assert refused.returncode == 2
    assert "does not hold what a lottery publishes" in refused.stderr


def test_places_of_a_lottery_of_millions_are_checked_by_sample():
    entrants = {0: {"n": 3_000_000, "taken": 3_000_000, "hash": "11" * 32}}
    [sampled] = [row for row in check(published(entrants=entrants), Evidence()) if "every entrant" in row.statement]
    assert (sampled.holds, sampled.detail) == (True, "100,000 of 3,000,000 computed")


# -- the check on the fans' page ---------------------------------------------------------------------------------------

MINE = "Your number 34 got its place."
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
    found = run("fans/lottery_check.js", "check", [documents, {"lane": 0, "join_seq": 34, "rank": PLACE}])
    assert [[what for what, holds, _ in checks if holds is False] for checks in found] == [
        failed for _, failed in FORGED
    ]
