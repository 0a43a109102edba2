"""The packages that requirements bring with them, and programs that can import those and nothing else."""

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = "onsale"


def installed_with(*requirements: str) -> set[str]:
    """The names of the packages that pip installs for these requirements; those of `onsale` stand in pyproject.toml."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, wanting_extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": wanting_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in found if known == name}:
            found.add((name, extra))
            needed = PROJECT["dependencies"] if name == OURS else requires(name) or []
            waiting += [(Requirement(text), extra) for text in needed]
    return {name for name, _ in found}


@cache
def providers() -> dict[str, set[str]]:
    """The installed packages that contain each top-level module."""
    return {module: set(map(canonicalize_name, names)) for module, names in packages_distributions().items()}


def run_with_only(*requirements: str, code: str, folder: Path = ROOT) -> str:
    """What the program prints in a process that can import these requirements, the standard library and `folder`."""
    allowed = installed_with(*requirements)
    blocked = [module for module, packages in providers().items() if not packages & allowed]
    program = f"import sys\nfor blocked in {blocked!r}: sys.modules.setdefault(blocked)\n{code}"
    environ = {name: value for name, value in os.environ.items() if not re.match("ONSALE_", name)}
    ran = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program], env=environ | {"PYTHONPATH": str(folder)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout
