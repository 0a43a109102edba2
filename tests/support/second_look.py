"""After a first look at all tests: what failed is listed, kept, and looked at once more, alone, if it is little.

A busy machine makes a deadline miss now and then; more than a few misses are a defect, and so is a test that is often
on the list (`.pytest_cache/second-looks.txt`).
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
KEPT = Path(".pytest_cache/second-looks.txt")
MOST = 6


def main() -> int:
    """The exit code of `make test`."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    print(f"\nFailed in the first look: {len(failed)}", *failed, sep="\n  ", flush=True)  # noqa: T201
    if not 0 < len(failed) <= MOST:
        print(f"A second look is for 1 to {MOST} tests.", flush=True)  # noqa: T201
        return 1
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with KEPT.open("a") as kept:
        kept.writelines(f"{now} {name}\n" for name in failed)
    print("Once more, one at a time: only what fails again is broken.", flush=True)  # noqa: T201
    command = [sys.executable, "-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures", "none"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
