"""Runs tests on every supported Python and every PostgreSQL, Redis and Valkey found here: `make matrix`.

Each Python runs the fast tier, and the database tests with the servers it would choose by itself; this Python runs the
database tests once more with each other PostgreSQL and each other Redis or Valkey. Missing versions are listed. With
filters (`make matrix ARGS=3.13`) only runs with one of them in their name are tried, and the others are listed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from onsale.local import binaries

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv" / "matrix"
LOCK = ROOT / "requirements-dev.lock"
PYTHONS = ("3.11", "3.12", "3.13")
POSTGRES_MAJORS = (15, 16, 17, 18)
REDIS_KINDS = ("Valkey", "Redis")
FAST = ("-m", "not redis and not postgres and not journey and not browser and not proof")
DATABASE_TESTS = (
    "-m", "",
    "tests/journeys/buying/test_one_fan.py", "tests/onsale/cli/test_command_line.py",
    "tests/shared/postgres/test_migrations.py", "proof/plans",
    "tests/queue/recovery/test_rebuild.py", "tests/queue/recovery/test_redis_unavailable.py",
    "tests/inventory/redis_stock/test_rebuild.py",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Tests with one Python, one PostgreSQL and one Redis or Valkey."""

    name: str
    python: Callable[[], Path]
    options: tuple[str, ...]
    environ: tuple[tuple[str, str], ...] = ()

    def passes(self) -> bool:
        """Prints its name, then runs its tests."""
        report(f"\n== {self.name}")
        command = [str(self.python()), "-P", "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", *self.options]
        environ = os.environ | {"PYTHONSAFEPATH": "1"} | dict(self.environ)
        return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main(filters: Sequence[str]) -> int:
    """The exit code of `make matrix`."""
    pythons = {minor: path for minor in PYTHONS if (path := find_python(minor))}
    postgres, redis = dict(find_postgres()), dict(find_redis())
    report("Found:", *(f"  Python {minor}: {path}" for minor, path in pythons.items()))
    report(*(f"  {name}: {path}" for name, path in {**postgres, **redis}.items()))
    absent = [f"Python {minor}" for minor in PYTHONS if minor not in pythons]
    absent += [f"PostgreSQL {major}" for major in POSTGRES_MAJORS if f"PostgreSQL {major}" not in postgres]
    absent += [kind for kind in REDIS_KINDS if not any(name.startswith(kind) for name in redis)]
    report("Not found, so not tried: " + (", ".join(absent) or "nothing"))
    if not (pythons and postgres and redis):
        return 1
    left_out = []
    outcomes = {}
    for run in runs(pythons, postgres, redis):
        if filters and not any(each in run.name for each in filters):
            left_out.append(run.name)
        else:
            outcomes[run.name] = run.passes()
    report(
        "\nPassed and failed:", *(f"  {'passed' if passed else 'FAILED'}  {name}" for name, passed in outcomes.items())
    )
    report("Not tried: " + ("; ".join([*absent, *left_out]) or "nothing"))
    return 0 if outcomes and all(outcomes.values()) else 1


def runs(pythons: dict[str, Path], postgres: dict[str, Path], redis: dict[str, Path]) -> Iterator[Run]:
    """Each Python with the preferred servers, then this Python with each of the others."""
    (first_postgres, *_), (first_redis, *_) = postgres, redis

    def environ(postgres_name: str, redis_name: str) -> tuple[tuple[str, str], ...]:
        return ("ONSALE_POSTGRES_BIN", str(postgres[postgres_name])), ("ONSALE_REDIS_BIN", str(redis[redis_name]))

    for minor, interpreter in pythons.items():
        python = partial(installed_python, minor, interpreter)
        yield Run(f"Python {minor}, fast tier", python, FAST)
        yield Run(
            f"Python {minor}, {first_postgres}, {first_redis}",
            python,
            DATABASE_TESTS,
            environ(first_postgres, first_redis),
        )
    here, this = partial(Path, sys.executable), f"Python {sys.version_info.major}.{sys.version_info.minor}"
    for other in [name for name in postgres if name != first_postgres]:
        yield Run(f"{this}, {other}, {first_redis}", here, DATABASE_TESTS, environ(other, first_redis))
    for other in [name for name in redis if name != first_redis]:
        yield Run(f"{this}, {first_postgres}, {other}", here, DATABASE_TESTS, environ(first_postgres, other))


def find_python(minor: str) -> Path | None:
    """The first interpreter of this version that runs: from PATH, or from pyenv."""
    on_path = shutil.which(f"python{minor}")
    in_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{minor}.*/bin/python{minor}"))
    for candidate in [*([Path(on_path)] if on_path else []), *in_pyenv]:
        version = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if version.returncode == 0 and version.stdout.startswith(f"Python {minor}."):
            return candidate
    return None


def find_postgres() -> Iterator[tuple[str, Path]]:
    """The directory of each major version, the one that would be chosen first."""
    programs = [binaries._try_postgres(directory) for directory in binaries._postgres_directories(os.environ)]
    majors = {f"PostgreSQL {each.major}": each.directory for each in reversed(programs) if each}
    yield from sorted(majors.items(), reverse=True)


def find_redis() -> Iterator[tuple[str, Path]]:
    """The program of each version."""
    for program in binaries._redis_programs(os.environ):
        version = binaries._version(program, r"(?:Valkey|Redis) server v=(\d+)\.(\d+)")
        if binaries._redis_runs(program) and version:
            kind = "Valkey" if "valkey" in program.name else "Redis"
            yield f"{kind} {version[0]}.{version[1]}", program


def installed_python(minor: str, interpreter: Path) -> Path:
    """The running interpreter if it has this version; else that of a virtual environment with the locked packages."""
    if minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    folder = ENVIRONMENTS / minor
    python, stamp = folder / "bin" / "python", folder / "installed"
    lock_hash = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != lock_hash:
        report(f"\nInstalling for Python {minor} …")
        subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "--no-deps", "--require-hashes", "-r", str(LOCK)], check=True, cwd=ROOT)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", "."], check=True, cwd=ROOT)
        stamp.write_text(lock_hash)
    return python


def report(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
