"""Released versions and earlier commits: found in git when the proof runs, unpacked into folders of their own."""

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIRE = ("shared/contracts", "services/queue/internal.py", "services/inventory/internal.py")
NO_HISTORY = "This checkout has no history, so there are no earlier versions to try."


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@cache
def has_history() -> bool:
    """Whether this is a checkout with every commit."""
    try:
        return git("rev-parse", "--is-shallow-repository").strip() == "false"
    except (OSError, subprocess.CalledProcessError):
        return False


@cache
def releases() -> dict[str, str]:
    """The last commit of each version before today's, by version, newest first."""
    changed = git("log", "--format=%H", "-G^VERSION = ", "HEAD", "--", "shared/__init__.py").split()
    before = [git("rev-parse", f"{commit}^").strip() for commit in changed[:-1]]  # the oldest introduced it
    return {git("show", f"{commit}:shared/__init__.py").split('"')[-2]: commit for commit in before}


def not_installed(commit: str) -> list[str]:
    """The packages that the code of this commit needs and this environment does not have."""
    project = tomllib.loads(git("show", f"{commit}:pyproject.toml"))["project"]
    missing = []
    for requirement in project["dependencies"]:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            distribution(name)
        except PackageNotFoundError:
            missing.append(name)
    return missing


def commit_before() -> str:
    """The newest commit with other models between services than today's."""
    changed = git("log", "-1", "--format=%H", "HEAD", "--", *WIRE).strip()
    return git("rev-parse", f"{changed}^").strip()


def unpacked(commit: str, folder: Path) -> Path:
    """The tree of this commit with its generated clients, below `folder`; unpacked once."""
    tree = folder / commit[:12]
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
        if (tree / "tools" / "clients").exists():  # 0.1.0 had them in the repository
            environ = os.environ | {"PYTHONPATH": str(tree)}
            subprocess.run([sys.executable, "-P", "-m", "tools.clients"], cwd=tree, env=environ, check=True)
    return tree
