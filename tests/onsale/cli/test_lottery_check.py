"""Anybody's check of a lottery: whatever is forged in what is published, one line says NO and the exit code is 1."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onsale.cli import app as cli
from onsale.lottery_check import Evidence, check, drawn_orders
from shared.contracts.lottery import PublishedLottery
from shared.rules.lottery_ranking import climb, commitment, root
from tests.support.lotteries import LEAVES, NOON, VALUE, proof, published


def broken(lottery: PublishedLottery, evidence: Evidence) -> list[str]:
    return [one.statement for one in check(lottery, evidence) if one.holds is False]


PLACE = drawn_orders(published())[0].rank(34)
KNOWN = Evidence(entry=34, place=PLACE, public_value=VALUE, earlier=published(), proof=proof(34))


def test_an_honest_lottery_holds():
    assert broken(published(), KNOWN) == []
    before = published(stage="closed", public_value=None, seed=None, drawn_at=None)
    assert broken(before, Evidence(earlier=before)) == []
    assert broken(published(), Evidence(earlier=before)) == []


PROMISED = "commitment and rules are those of the earlier document"
OTHER_RULES = {
    "entry_closes_at": NOON,
    "public_value": {"what": "a dice I throw", "known_at": NOON + timedelta(hours=1)},
}


@pytest.mark.parametrize(
    ("forged", "found"),
    [
        ({"seed": "00" * 32}, "the seed is the one committed to"),
        ({"seed": "00" * 32, "commitment": commitment(bytes(32))}, PROMISED),
        ({"public_value": "24,331.10"}, "the public value is the one that became known"),
        ({"public_value": "24,331.10"}, f"entry 34 got place {PLACE}"),
        ({"entrants": {0: {"n": 201, "taken": 201, "hash": root(LEAVES).hex()}}}, "so are the entrants"),
        ({"entrants": {0: {"n": 200, "taken": 200, "hash": "11" * 32}}}, "entry 34 was counted with its owner"),
        ({"rules": OTHER_RULES}, PROMISED),
        ({"committed_at": NOON}, "the seed was committed to before entry opened"),
        ({"closed_at": NOON - timedelta(seconds=1)}, "entry closed when it was to close, not before"),
        ({"counted_at": NOON + timedelta(hours=2)}, "the entrants were published before the value was known"),
        ({"drawn_at": NOON + timedelta(minutes=59)}, "it was drawn after the value was known"),
        ({"epoch": 2}, "it is the lottery of the earlier document"),
        ({"algorithm": "another"}, "it is drawn by the rules we know"),
    ],
)  # fmt: skip
def test_whatever_is_forged_is_found(forged: dict[str, Any], found: str):
    assert found in broken(published(**forged), KNOWN)


def test_a_proof_for_somebody_elses_entry_is_found():
    assert broken(published(), Evidence(proof=proof(34).model_copy(update={"entry": 35})))
    assert broken(published(), Evidence(proof=proof(34, receipt="22" * 32)))
    assert climb(LEAVES[33], 33, 200, proof(34).path) == root(LEAVES).hex()


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.app(["lottery", *words])
    return int(ended.value.code or 0)


def test_the_command_says_what_it_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    honest, forged, mine = (tmp_path / name for name in ("honest.json", "forged.json", "mine.json"))
    honest.write_text(published().model_dump_json())
    forged.write_text(published(public_value="24,331.10").model_dump_json())
    mine.write_text(proof(34).model_dump_json())
    mind = ("--entry", "34", "--place", str(PLACE), "--proof", str(mine))
    assert run("verify", str(honest), *mind, "--public-value", VALUE) == 0
    said = capsys.readouterr().out
    assert "all 200 computed" in said
    assert "NO" not in said
    assert run("verify", str(forged), *mind) == 1
    assert "NO" in capsys.readouterr().out
    assert run("show", str(honest)) == 0
    assert PublishedLottery.model_validate_json(capsys.readouterr().out) == published()


def test_what_is_no_lottery_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "other.json").write_text('{"event_id": "show"}')
    monkeypatch.setattr("sys.argv", ["onsale", "lottery", "verify", str(tmp_path / "other.json")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "does not hold what a lottery publishes" in capsys.readouterr().err


def test_a_lottery_of_millions_is_checked_by_sample():
    entrants = {0: {"n": 3_000_000, "taken": 3_000_000, "hash": "11" * 32}}
    [sampled] = [one for one in check(published(entrants=entrants), Evidence()) if "every entrant" in one.statement]
    assert (sampled.holds, sampled.detail) == (True, "100,000 of 3,000,000 computed")
