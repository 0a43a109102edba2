"""Verifying a published lottery: a forgery makes one check print NO and the exit code 1."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onsale.lottery_check import Evidence, check, drawn_orders
from shared.contracts.lottery import PublishedLottery
from shared.rules.lottery_ranking import climb, commitment, root
from tests.support.lotteries import LEAVES, NOON, VALUE, proof, published
from tests.support.running.command_line import Command


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
