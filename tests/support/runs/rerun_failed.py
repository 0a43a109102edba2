"""Runs the tests that failed in a whole run again, alone, in CI: a busy machine of others may cause a missed deadline.
The last lines name the tests that needed the second run.

A developer's run fails when a test fails. More than `RERUNS_MAX` failures are a defect and are not run again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
RERUNS_MAX = 3
ONE_BY_ONE = (sys.executable, "-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures", "none", "-m", "")


def main() -> int:
    """The exit code of a whole run that has failed."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if os.environ.get("CI") != "true" or not 0 < len(failed) <= RERUNS_MAX:
        return 1
    print(f"\nRunning {len(failed)} failed tests again, one at a time.", flush=True)  # noqa: T201
    code = subprocess.run(ONE_BY_ONE, check=False).returncode
    print("\nThese tests failed first and ran again, alone:", *failed, sep="\n  ", flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
