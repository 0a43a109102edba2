"""Lists the tests that failed in a whole run, appends them to `.pytest_cache/reruns.txt` and runs them again, alone.

On a busy machine a test misses a deadline now and then. More than `RERUNS_MAX` failures are not rerun: they are a
defect, and so is a test that is listed there often.
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
HISTORY = Path(".pytest_cache/reruns.txt")
RERUNS_MAX = 3


def main() -> int:
    """The exit code of `make test`."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    print(f"\nFailed: {len(failed)}", *failed, sep="\n  ", flush=True)  # noqa: T201
    if not 0 < len(failed) <= RERUNS_MAX:
        print(f"Only 1 to {RERUNS_MAX} failed tests are rerun.", flush=True)  # noqa: T201
        return 1
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with HISTORY.open("a") as history:
        history.writelines(f"{now} {name}\n" for name in failed)
    print("Running them again, one at a time.", flush=True)  # noqa: T201
    command = [sys.executable, "-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures", "none", "-m", ""]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
