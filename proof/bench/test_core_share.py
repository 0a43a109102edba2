"""A share of a core: within it a busy process gets no more, and the control group is gone afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.scale.core_share import core_share

SHARE, SECONDS = 0.2, 0.5
SPIN = f"""
import time
input()
spent_s, end_s = time.process_time(), time.perf_counter() + {SECONDS}
while time.perf_counter() < end_s:
    pass
print(time.process_time() - spent_s)
"""


def _busy_s(*, limited: bool) -> float:
    """Processor seconds that a spinning process gets in `SECONDS`."""
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as spinning, core_share([spinning.pid] if limited else [], SHARE) as is_limited:  # fmt: skip
        if not is_limited:
            spinning.kill()
            pytest.skip("the kernel gives us no control group")
        return float(spinning.communicate("\n", timeout=30)[0])


def test_a_busy_process_gets_its_share_and_not_more() -> None:
    groups = set(Path("/sys/fs/cgroup").glob("**/onsale-bench-*"))
    assert _busy_s(limited=True) < 1.5 * SHARE * SECONDS
    assert _busy_s(limited=False) > 1.5 * SHARE * SECONDS, "without a limit it gets more, or this test shows nothing"
    assert set(Path("/sys/fs/cgroup").glob("**/onsale-bench-*")) == groups


def test_where_no_group_can_be_made_nothing_is_limited(tmp_path: Path) -> None:
    with core_share([1], SHARE, tmp_path / "missing") as limited:
        assert not limited
