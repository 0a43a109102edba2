"""Lists the suite's processes for Prometheus, in the form of its file-based service discovery.

A process is one target, whatever services it runs: they share one registry, and six targets would count everything
six times.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from onsale.atomic_file import atomic_write

TARGETS_FILE = "prometheus-targets.json"


def write_scrape_targets(data_dir: Path, processes: Mapping[str, str]) -> None:
    """Writes `<data-dir>/prometheus-targets.json`; `processes` has the internal address of each by its name."""
    targets = [{"targets": [address], "labels": {"process": name}} for name, address in processes.items()]
    atomic_write(data_dir / TARGETS_FILE, json.dumps(targets, indent=2) + "\n")
