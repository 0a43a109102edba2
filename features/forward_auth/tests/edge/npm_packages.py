"""The runtimes and types that the platforms publish on npm, installed once, from the lock file, into the cache."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.programs import need

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json", ".npmrc")
INSTALLED_WITHIN_S = 500


def installed() -> Path:
    """The folder that holds them in `node_modules`."""
    digest = hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in FILES)).hexdigest()[:16]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onsale" / f"edge-{digest}"
    if not (kept / "complete").exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for name in FILES:
            shutil.copy(HERE / name, kept / name)
        done = subprocess.run(
            [need("npm"), "ci", "--silent"], cwd=kept, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        (kept / "complete").touch()
    return kept
