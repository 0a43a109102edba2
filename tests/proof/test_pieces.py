"""Every folder of the proof belongs to a piece, and a change runs the pieces that cover it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proof import pieces
from proof.__main__ import PARTS, chosen, parse_options
from proof.pieces import PIECES

ROOT = Path(__file__).parents[2]


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
