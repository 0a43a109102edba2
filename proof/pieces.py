"""The pieces of the proof: what each runs, and which files it covers, so that a change can run what it touched."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "", "--timeout", "14400")
ENGINES = ("services/queue/", "services/inventory/", "services/orders/", "shared/")
SUITE = ("services/", "features/", "shared/", "onsale/local/", "onsale/server/")


@dataclass(frozen=True)
class Piece:
    """`covers`: beginnings of the paths whose change the piece would notice. A part of `proof/` with a budget of
    seconds has no `command`. `narrows`: the command takes `--touched COMMIT`, too, and does less.
    """

    covers: tuple[str, ...]
    command: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    narrows: bool = False


PIECES = {
    "types": Piece(("services/", "features/", "shared/", "onsale/", "tests/", "proof/", "bench/", "tools/"),
                   ("make", "types", "TYPED=tests proof bench tools")),
    "plans": Piece((*ENGINES, "proof/plans/"), (*PYTEST, "proof/plans")),
    "drills": Piece((*SUITE, "deploy/", "proof/drills/"), ("make", "drills")),
    "browser": Piece(("web/", "services/gateway/", "features/console/", "shared/words/", "tests/browser/",
                      "proof/browser/"),
                     (*PYTEST, "proof/browser")),
    "journeys": Piece((*SUITE, "onsale/", "docs/start/", "docs/use/client-libraries.md", "docs/use/webhooks.md",
                       "proof/journeys/"), (*PYTEST, "proof/journeys")),
    "variations": Piece((*SUITE, "deploy/", "onsale/", "bench/", "proof/"),
                        (*PYTEST[:4], "-m", "proof", "--timeout", "14400", "tests", "features", "proof/models",
                         "proof/swarm", "proof/bad_input")),
    "installing": Piece(("deploy/", "docs/", "onsale/", "tools/", "Makefile", "pyproject.toml", "proof/deploy/",
                         "proof/onsale/"), (*PYTEST, "proof/deploy", "proof/onsale")),
    "benchmarks": Piece((*ENGINES, "bench/", "proof/bench/"), (*PYTEST, "proof/bench")),
    "histories": Piece((*ENGINES, "tests/properties/"),
                       (*PYTEST, "tests/properties", "features/hall/tests/test_brand.py",
                        "tests/orders/payments/test_open_providers.py", "tests/orders/refunds/test_refunds.py"),
                       (("ONSALE_EXAMPLES", "2000"),)),
    "clicks": Piece(("web/", "services/gateway/"), (*PYTEST, "proof/browser/buying/test_random_actions.py"),
                    (("ONSALE_CLICKING_S", "3600"),)),
    "guards": Piece(("services/", "features/", "shared/", "onsale/", "web/", "tests/", "proof/guards/"),
                    (sys.executable, "-m", "proof.guards"), narrows=True),
    "models": Piece((*ENGINES, "proof/models/")),
    "swarm": Piece((*SUITE, "proof/swarm/")),
    "upgrades": Piece(("services/queue/", "services/inventory/", "services/orders/", "features/console/tables.py",
                       "features/console/migrations/", "shared/postgres/", "shared/contracts/", "proof/upgrades/")),
    "bad_input": Piece((*SUITE, "onsale/event_files.py", "proof/bad_input/")),
    "load": Piece((*SUITE, "proof/load/")),
}  # fmt: skip


def changed_since(commit: str) -> list[str]:
    """The files that changed since this commit, uncommitted changes among them."""
    git = ["git", "diff", "--name-only", commit, "--"]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def touched(since: str) -> list[str]:
    """The pieces that cover a file which changed since this commit."""
    changed = changed_since(since)
    return [name for name, piece in PIECES.items() if any(path.startswith(piece.covers) for path in changed)]


def run(names: Sequence[str], since: str | None = None) -> list[str]:
    """Runs the commands of these pieces, for what changed since a commit if they can; a sentence for each failure."""
    failed = []
    for piece in (PIECES[name] for name in names if PIECES[name].command):
        command = (*piece.command, "--touched", since) if piece.narrows and since else piece.command
        if subprocess.run(command, cwd=ROOT, env={**dict(piece.environ), **os.environ}, check=False).returncode:
            failed.append(f"failed: {' '.join(command)}")
    return failed
