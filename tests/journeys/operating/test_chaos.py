"""Sixty simulated purchases with every kind of payment fault: our money ledger and the provider's charges agree."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from onsale.simulate.reconciliation import Reconciliation
from tests.support.running.suite import RunningSuite

FANS = 60


def checked(history: Path, suite: RunningSuite) -> "subprocess.CompletedProcess[str]":
    """`onsale check-history`, run by an operator beside the suite."""
    command = [sys.executable, "-P", "-m", "onsale", "check-history", str(history)]
    environ = {name: value for name, value in os.environ.items() if "POSTGRES_URL" not in name}
    address = ["--data-dir", str(suite.data_dir)]
    return subprocess.run([*command, *address], capture_output=True, text=True, timeout=120, check=False, env=environ)


@pytest.mark.proof
async def test_after_sixty_purchases_with_payment_faults_the_books_agree(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(
        sections=[{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 1000, "price_minor": 3000}]
    )
    report, history = tmp_path / "report.json", tmp_path / "history.jsonl"
    command = [sys.executable, "-P", "-m", "onsale", "simulate", "--event-id", event_id, "--fans", str(FANS)]
    options = ["--chaos", "--arrive-over", "1", "--streams", "5", "--seed", "7", "--json", str(report)]
    options += ["--history", str(history)]
    address = ["--url", suite.url, "--data-dir", str(suite.data_dir)]
    run = await asyncio.to_thread(
        subprocess.run, [*command, *options, *address], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    kept = await asyncio.to_thread(checked, history, suite)
    assert kept.returncode == 0, kept.stdout + kept.stderr
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
