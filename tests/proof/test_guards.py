"""The list of guards: each is where it says, names a test that exists, and only a test that noticed counts as red.

Every folder of the proof belongs to a piece, and a change runs the pieces that cover it.

`make proof` shares the time, counts what the parts tried, and fails if one found something or broke off.
"""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proof import pieces
from proof.__main__ import PARTS, chosen, main, parse_options
from proof.guards.guard import AREAS, TIERS, Guard, node_id
from proof.guards.page import GUARDS, HEAD, PAGE, row
from proof.guards.removal import Run, Tree, copied_tree
from proof.part import Budget, Result
from proof.pieces import PIECES

ROOT = Path(__file__).parents[2]


def test_each_guard_stands_once_in_its_file() -> None:
    texts = {path: (ROOT / path).read_text() for path in {guard.path for guard in GUARDS}}
    counts = [(guard.path, guard.old, texts[guard.path].count(guard.old)) for guard in GUARDS]
    assert [found for found in counts if found[2] != 1] == []
    assert [guard for guard in GUARDS if guard.new == guard.old] == []


def test_the_test_of_each_guard_exists() -> None:
    missing = []
    for test in {guard.test for guard in GUARDS}:
        try:
            node_id(test)
        except LookupError as problem:
            missing.append(str(problem))
    assert sorted(missing) == []


def test_no_guard_is_listed_twice_and_every_area_has_some() -> None:
    twice = [key for key, n in Counter((guard.path, guard.old, guard.new) for guard in GUARDS).items() if n > 1]
    assert twice == []
    assert {guard.area for guard in GUARDS} == set(AREAS)


def test_the_page_has_every_guard() -> None:
    page = PAGE.read_text()
    tier = f"(?:{'|'.join(TIERS)})"
    rows = [re.escape(row(guard, "TIER")).replace("TIER", tier) for guard in GUARDS]
    assert [line for line in rows if not re.search(f"^{line}$", page, re.M)] == [], "python -m proof.guards --save"
    assert page.startswith(HEAD)
    assert len(re.findall(rf"\| {tier} \|$", page, re.M)) == len(GUARDS)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A tree with one product file, `limit.py`, and tests of it."""
    folder = tmp_path_factory.mktemp("copied") / "tree"
    (folder / "tests").mkdir(parents=True)
    (folder / "proof/guards").mkdir(parents=True)
    (folder / "proof/guards/report.py").write_bytes((ROOT / "proof/guards/report.py").read_bytes())
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "limit.py").write_text("def limited(n):\n    if n > 5:\n        return 5\n    return n\n")
    (folder / "tests/test_limit.py").write_text(
        "from limit import limited\n\ndef test_limit():\n    assert limited(9) == 5\n\n"
        "def test_no_limit():\n    assert limited(2) == 2\n"
    )
    return Tree(folder)


@pytest.mark.parametrize(
    ("test", "new", "verdict"),
    [
        ("test_limit", "if n > 50:", "red"),
        ("test_no_limit", "if n > 50:", "green"),
        ("test_limit", "if n >:", "broken: it cannot be imported"),
        ("test_limit", "if m > 5:", "broken: NameError in call"),
    ],
)
def test_only_a_test_that_noticed_counts_as_red(
    tree: Tree, test: str, new: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proof.guards.removal.ROOT", tree.folder.parent)
    (tree.folder.parent / "limit.py").write_bytes((tree.folder / "limit.py").read_bytes())
    with tree.without(Guard("Five at most", "limit.py", "if n > 5:", new, test)):
        assert tree.pytest([f"tests/test_limit.py::{test}"], timeout_s=60).verdict == verdict


def test_red_is_worth_more_than_what_broke_with_it() -> None:
    assert Run(passed=["a"], red=["b"], broken=[("c", "OSError in call")]).verdict == "red"
    assert Run(passed=["a"], broken=[("c", "OSError in call")]).verdict == "broken: OSError in call"
    assert Run(said="timeout").verdict == "no result: timeout"


def test_a_copied_tree_has_what_the_checkout_has_and_goes_away() -> None:
    with copied_tree() as copied:
        assert (copied.folder / "proof/guards/report.py").read_bytes() == (ROOT / "proof/guards/report.py").read_bytes()
        assert (copied.folder / "Makefile").exists()
        assert (copied.folder / "onsale/client/fan_calls.py").exists(), "made, not in git"
        assert not (copied.folder / ".git").exists()
    assert not copied.folder.exists()


def test_every_folder_of_the_proof_is_run_by_a_piece() -> None:
    folders = {path.relative_to(ROOT / "proof").parts[0] for path in (ROOT / "proof").glob("*/**/*.py")}
    words = [word.replace(".", "/") for piece in PIECES.values() for word in piece.command]
    run = {word.split("/")[1] for word in words if word.startswith("proof/")}
    assert folders == run | PARTS.keys() | {"drills"}  # these are run by `make drills`


def test_what_a_piece_covers_exists() -> None:
    for name, piece in PIECES.items():
        assert [path for path in piece.covers if not (ROOT / path).exists()] == [], name
        assert [word for word in piece.command if "/" in word and not (ROOT / word).exists() and word[0] != "/"] == []
        assert bool(piece.command) != (name in PARTS)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["README.md"], set()),
        (["services/orders/checkout/checkout.py"], {"types", "plans", "upgrades", "models", "swarm", "variations"}),
        (["web/fans/hall/hall.js"], {"browser", "clicks", "guards"}),
        (["deploy/nginx.conf"], {"drills", "installing", "variations"}),
    ],
)
def test_a_change_runs_the_pieces_that_cover_it(
    changed: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "changed_since", lambda commit: changed)
    found = set(pieces.touched("main"))
    assert found >= expected
    assert found or not expected
    assert not (found - expected) or "services/" in changed[0]


def test_a_piece_that_can_runs_for_what_changed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def ran(command: tuple[str, ...], **_: Any) -> SimpleNamespace:
        commands.append(command[2:])
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr("proof.pieces.subprocess.run", ran)
    assert len(pieces.run(["guards", "plans", "models"], "main")) == 2
    assert (commands[0], commands[1][-1]) == (("proof.guards", "--touched", "main"), "proof/plans")
    assert pieces.run(["guards"]) == [f"failed: {' '.join(PIECES['guards'].command)}"]


def test_pieces_are_chosen_by_name_or_all_of_them() -> None:
    assert chosen(parse_options(["--only", "plans,swarm"])) == (["plans"], ["swarm"])
    assert chosen(parse_options(["--minutes", "2"])) == ([], list(PARTS))
    assert chosen(parse_options([])) == (["types", "drills", "histories", "clicks", "guards"], list(PARTS))
    with pytest.raises(SystemExit):
        parse_options(["--only", "nothing"])


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
