"""`make proof` shares the time, counts what the parts tried, and fails if one found something or broke off."""

import pytest

from proof.__main__ import PARTS, main, parse_options
from proof.part import Budget, Result


def test_parts_share_the_time_and_the_last_line_counts_what_they_tried(capsys: pytest.CaptureFixture[str]) -> None:
    given = list[Budget]()

    def part(budget: Budget) -> Result:
        given.append(budget)
        return Result({"trials": 2, "faults": 1000})

    assert main(parse_options(["--minutes", "2", "--seed", "7"]), lambda name: part) == 0
    assert {budget.seed for budget in given} == {7}
    assert given[0].seconds == pytest.approx(120 * PARTS["models"], abs=1)
    assert given[-1].seconds == pytest.approx(120, abs=1), "time that the others left"
    assert capsys.readouterr().out.splitlines()[-1] == "proof: seed 7, 0.0 minutes: 10 trials, 5,000 faults; found: 0"


def test_a_part_that_finds_something_or_breaks_off_fails_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(budget: Budget) -> Result:
        raise RuntimeError("no engine")

    parts = {"models": broken, "swarm": lambda budget: Result(found=["seed 7 loses an order"])}
    assert main(parse_options(["--minutes", "0.1", "--only", "models,swarm"]), parts.__getitem__) == 1
    printed = capsys.readouterr().out
    assert "models broke off" in printed
    assert "no engine" in printed
    assert "found: seed 7 loses an order" in printed
    assert printed.rstrip().endswith("found: 2")


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--minutes", "0"]])
def test_options_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_options(arguments)
    assert refused.value.code == 2
