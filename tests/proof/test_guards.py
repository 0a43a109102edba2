"""The list of guards: each is where it says, names a test that exists, and only a test that noticed counts as red."""

import re
from collections import Counter
from pathlib import Path

import pytest

from proof.guards.found_tests import TIERS, node_id
from proof.guards.guard import AREAS, Guard
from proof.guards.listed import GUARDS
from proof.guards.page import HEAD, PAGE, row
from proof.guards.removal import Run, Tree, copied_tree

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
        assert (copied.folder / "proof/guards/listed.py").read_bytes() == (ROOT / "proof/guards/listed.py").read_bytes()
        assert (copied.folder / "Makefile").exists()
        assert (copied.folder / "onsale/client/fan_calls.py").exists(), "made, not in git"
        assert not (copied.folder / ".git").exists()
    assert not copied.folder.exists()
