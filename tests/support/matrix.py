"""Every supported Python and every engine that is found here, each with the tests that would notice: `make matrix`.

Each Python runs the fast tier and the engine tests with the engines it would choose by itself; this Python runs the
engine tests once more with each other PostgreSQL and each other Redis or Valkey. What is absent is named. With words
after it (`make matrix ARGS=3.13`) only the runs are tried that have one of them in their name, and the rest is named.
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

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv" / "matrix"
LOCK = ROOT / "requirements-dev.lock"
PYTHONS = ("3.11", "3.12", "3.13")
POSTGRES_MAJORS = (15, 16, 17, 18)
REDIS_KINDS = ("Valkey", "Redis")
FAST = ("-m", "not redis and not postgres and not journey and not browser")
ENGINE_TESTS = (
    "tests/journeys/buying/test_one_fan.py", "tests/onsale/cli/test_migrations.py",
    "tests/shared/postgres/test_migrations.py", "tests/queue/admin/test_migrations.py", "tests/plans",
    "tests/queue/recovery/test_recovery.py", "tests/inventory/redis_stock/test_rebuild.py",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Tests with one Python and one pair of engines."""

    name: str
    python: Callable[[], Path]
    options: tuple[str, ...]
    environ: tuple[tuple[str, str], ...] = ()

    def passes(self) -> bool:
        """Says what it tries; its tests say what they find."""
        say(f"\n== {self.name}")
        command = [str(self.python()), "-P", "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", *self.options]
        environ = os.environ | {"PYTHONSAFEPATH": "1"} | dict(self.environ)
        return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main(words: Sequence[str]) -> int:
    """The exit code of `make matrix`."""
    pythons = {minor: found for minor in PYTHONS if (found := find_python(minor))}
    postgres, redis = dict(find_postgres()), dict(find_redis())
    say("Found:", *(f"  Python {minor}: {where}" for minor, where in pythons.items()))
    say(*(f"  {name}: {where}" for name, where in {**postgres, **redis}.items()))
    absent = [f"Python {minor}" for minor in PYTHONS if minor not in pythons]
    absent += [f"PostgreSQL {major}" for major in POSTGRES_MAJORS if f"PostgreSQL {major}" not in postgres]
    absent += [kind for kind in REDIS_KINDS if not any(name.startswith(kind) for name in redis)]
    say("Not found, so not tried: " + (", ".join(absent) or "nothing"))
    if not (pythons and postgres and redis):
        return 1
    left_out = []
    outcomes = {}
    for run in runs(pythons, postgres, redis):
        if words and not any(word in run.name for word in words):
            left_out.append(run.name)
        else:
            outcomes[run.name] = run.passes()
    say("\nPassed and failed:", *(f"  {'passed' if good else 'FAILED'}  {name}" for name, good in outcomes.items()))
    say("Not tried: " + ("; ".join([*absent, *left_out]) or "nothing"))
    return 0 if outcomes and all(outcomes.values()) else 1


def runs(pythons: dict[str, Path], postgres: dict[str, Path], redis: dict[str, Path]) -> Iterator[Run]:
    """Each Python with the first engines, then this Python with each of the others."""
    (first_postgres, *_), (first_redis, *_) = postgres, redis

    def environ(store: str, db: str) -> tuple[tuple[str, str], ...]:
        return ("ONSALE_POSTGRES_BIN", str(postgres[store])), ("ONSALE_REDIS_BIN", str(redis[db]))

    for minor, interpreter in pythons.items():
        python, engines = partial(prepared, minor, interpreter), f"{first_postgres}, {first_redis}"
        yield Run(f"Python {minor}, fast tier", python, FAST)
        yield Run(f"Python {minor}, {engines}", python, ENGINE_TESTS, environ(first_postgres, first_redis))
    here, this = partial(Path, sys.executable), f"Python {sys.version_info.major}.{sys.version_info.minor}"
    for store in [name for name in postgres if name != first_postgres]:
        yield Run(f"{this}, {store}, {first_redis}", here, ENGINE_TESTS, environ(store, first_redis))
    for db in [name for name in redis if name != first_redis]:
        yield Run(f"{this}, {first_postgres}, {db}", here, ENGINE_TESTS, environ(first_postgres, db))


def find_python(minor: str) -> Path | None:
    """The first interpreter of this version that runs: on PATH, or among those of pyenv."""
    named = shutil.which(f"python{minor}")
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{minor}.*/bin/python{minor}"))
    for candidate in [*([Path(named)] if named else []), *kept]:
        asked = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.startswith(f"Python {minor}."):
            return candidate
    return None


def find_postgres() -> Iterator[tuple[str, Path]]:
    """One of each major version, the one that would be chosen first."""
    found = [binaries._try_postgres(directory) for directory in binaries._postgres_directories(os.environ)]
    majors = {f"PostgreSQL {each.major}": each.directory for each in reversed(found) if each}
    yield from sorted(majors.items(), reverse=True)


def find_redis() -> Iterator[tuple[str, Path]]:
    """One of each version that calls itself differently."""
    for program in binaries._redis_programs(os.environ):
        version = binaries._version(program, r"(?:Valkey|Redis) server v=(\d+)\.(\d+)")
        if binaries._redis_runs(program) and version:
            kind = "Valkey" if "valkey" in program.name else "Redis"
            yield f"{kind} {version[0]}.{version[1]}", program


def prepared(minor: str, interpreter: Path) -> Path:
    """This interpreter where it is the same version; else one of its own environment, installed from the lock once."""
    if minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    folder = ENVIRONMENTS / minor
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"\nInstalling for Python {minor} …")
        subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "--require-hashes", "-r", str(LOCK)], check=True, cwd=ROOT)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", "."], check=True, cwd=ROOT)
        stamp.write_text(wanted)
    return python


def say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
