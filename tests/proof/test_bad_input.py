"""A little of the bad input of `make proof` that needs no suite: it finds nothing."""

import os
from pathlib import Path
from random import Random

import pytest

from proof.bad_input.changed.files import check_event_files
from proof.bad_input.findings import Findings
from proof.bad_input.raw.raw_http import send_direct

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

SEED = int(os.environ.get("ONSALE_HYPOTHESIS_SEED", "1"))


def test_changed_event_files_are_refused(tmp_path: Path) -> None:
    found = Findings()
    check_event_files(found, tmp_path, Random(SEED), count=40)
    assert found.counts["mutated files"] > 20
    assert found.sentences(f"seed {SEED}") == []


async def test_raw_bytes_are_answered_once_and_by_http() -> None:
    found = Findings()
    await send_direct(found, seconds=1, random=Random(SEED))
    assert found.counts["raw requests"] >= 6  # one a lane, on a machine however slow
    assert found.sentences(f"seed {SEED}") == []
