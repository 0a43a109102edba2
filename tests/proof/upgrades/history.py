"""Earlier commits that changed a schema: found in git when the proof runs, unpacked into folders of their own."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.web.routes import SERVICES_WITH_TABLES

ROOT = Path(__file__).parents[3]
CODE = ("services", "shared", "onsale")
WIRE = ("shared/contracts", "services/queue/internal.py", "services/inventory/internal.py")
NO_HISTORY = "This checkout has no history, so there are no earlier commits to try."


@dataclass(frozen=True)
class EarlierSchema:
    """The migrations of a service as the first of its commits had them; `tree` is git's name for their content."""

    service: str
    tree: str
    commit: str


def git(*words: str, input_text: str | None = None) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, input=input_text, capture_output=True, text=True, check=True)
    return done.stdout


@cache
def has_history() -> bool:
    """Whether this is a checkout with every commit."""
    try:
        return git("rev-parse", "--is-shallow-repository").strip() == "false"
    except (OSError, subprocess.CalledProcessError):
        return False


@cache
def earlier_schemas() -> tuple[EarlierSchema, ...]:
    """Oldest first; those of today are left out."""
    of_migrations = ("--reverse", "--full-history", "--format=%H", "HEAD", "--", "services/*/migrations/versions/*")
    commits = git("log", *of_migrations).split()
    asked = [(service, commit) for commit in ("HEAD", *commits) for service in SERVICES_WITH_TABLES]
    lines = "".join(f"{commit}:services/{service}/migrations/versions\n" for service, commit in asked)
    answers = git("cat-file", "--batch-check", input_text=lines).splitlines()
    found: dict[tuple[str, str], str] = {}
    for (service, commit), answer in zip(asked, answers, strict=True):
        if not answer.endswith(" missing"):
            found.setdefault((service, answer.split()[0]), commit)
    return tuple(
        EarlierSchema(service, tree, commit) for (service, tree), commit in found.items() if commit != "HEAD"
    )  # fmt: skip


@cache
def whole_commits() -> tuple[str, ...]:
    """A commit for each combination of schemas, of those that had a whole suite; oldest first."""
    first = {each.commit: None for each in earlier_schemas()}
    return tuple(
        commit for commit in first if "sandbox" in git("ls-tree", "--name-only", commit, "onsale/")
        and "inventory" in git("ls-tree", "--name-only", commit, "services/")
        and "orders" in git("ls-tree", "--name-only", commit, "services/")
    )  # fmt: skip


def commit_before() -> str:
    """The newest commit with other models between services than today's."""
    changed = git("log", "-1", "--format=%H", "HEAD", "--", *WIRE).strip()
    return git("rev-parse", f"{changed}^").strip()


def unpacked(commit: str, folder: Path) -> Path:
    """The code of this commit, below `folder`; unpacked once."""
    tree = folder / commit[:12]
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit, *CODE], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree
