"""A sale for pictures: a suite of its own on a free port, so that the same screens come out on every machine."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.engines.engines import fast_directory
from tests.support.running.program import Program
from tests.support.running.suite import RunningSuite

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
EVENT_ID = "arena-2026"


@contextmanager
def sale(*, rate_per_s: int, fans: int, arrive_over_s: int) -> Iterator[tuple[RunningSuite, Program]]:
    """The arena with a third of its places, at a rate that one small machine keeps while it plays all fans; and the
    program that plays them, not yet started.
    """
    with tempfile.TemporaryDirectory(prefix="onsale-pictures-", dir=fast_directory()) as name:
        folder = Path(name)
        suite = RunningSuite(folder / "data", "--event", str(_event_file(folder, rate_per_s))).start()
        crowd = ["--event-id", EVENT_ID, "--fans", str(fans), "--arrive-over", str(arrive_over_s), "--streams", "40"]
        simulation = Program(
            [sys.executable, "-P", "-m", "onsale", "simulate", *crowd, "--data-dir", str(suite.data_dir)],
            folder / "simulate.log",
        )  # fmt: skip
        try:
            suite.wait_until_ready()
            yield suite, simulation
        finally:
            if simulation.is_running:
                simulation.end(signal.SIGTERM)
            suite.stop()


def _event_file(folder: Path, rate_per_s: int) -> Path:
    event: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "events" / "arena.yaml").read_text())
    for section in event["sections"]:
        size = "rows" if "rows" in section else "capacity"
        section[size] //= 3
    event["room"] |= {"rate_per_s": rate_per_s, "burst": rate_per_s}
    path = folder / "arena.yaml"
    path.write_text(yaml.safe_dump(event))
    return path
