"""Sixty simulated purchases with every kind of payment fault: our money ledger and the provider's charges agree."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from onsale.simulate.reconciliation import Reconciliation
from tests.support.running.suite import RunningSuite

FANS = 60


async def test_after_sixty_purchases_with_payment_faults_the_books_agree(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(
        sections=[{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 1000, "price_minor": 3000}]
    )
    report = tmp_path / "report.json"
    command = [sys.executable, "-P", "-m", "onsale", "simulate", "--event-id", event_id, "--fans", str(FANS)]
    options = ["--chaos", "--arrive-over", "1", "--streams", "5", "--seed", "7", "--json", str(report)]
    address = ["--url", suite.url, "--data-dir", str(suite.data_dir)]
    run = await asyncio.to_thread(
        subprocess.run, [*command, *options, *address], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(report.read_text())
    assert result["books"]["ours"] == result["books"]["theirs"]
    assert result["books"]["ours"]["refunded_minor"] > 0, "some payments failed, as intended"
    assert result["books"]["orders_confirmed"] >= result["bought"] > FANS / 4
    assert (result["failed"], result["server_errors"]) == ({}, 0)
    async with httpx.AsyncClient() as client:
        charges = (await client.get(f"{suite.engines['sandbox_url']}/charges", params={"limit": 1000})).json()
    assert len({charge["method"] for charge in charges["charges"]}) >= 8


@pytest.mark.parametrize(
    ("ours", "theirs", "agree"),
    [
        ({"a": (100, 0)}, {"a": (100, 0)}, True),
        ({"a": (100, 0)}, {"a": (100, 100)}, False),
        ({"a": (100, 0)}, {}, False),
        ({}, {"a": (100, 100)}, False),
    ],
)
def test_books_are_compared_charge_by_charge(
    ours: dict[str, tuple[int, int]], theirs: dict[str, tuple[int, int]], agree: bool
) -> None:
    assert Reconciliation(ours, theirs).agree is agree
    assert not Reconciliation(ours, theirs, ["7 a confirmed order is paid exactly"]).agree
