"""Sixty simulated purchases with every kind of payment fault: fans keep what they were told, and the money is right."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.support.running.suite import RunningSuite

FANS = 60


def checked(history: Path, suite: RunningSuite) -> "subprocess.CompletedProcess[str]":
    """`onsale check-history`, run by an operator beside the suite."""
    command = [sys.executable, "-P", "-m", "onsale", "check-history", str(history)]
    environ = {name: value for name, value in os.environ.items() if "POSTGRES_URL" not in name}
    address = ["--data-dir", str(suite.data_dir)]
    return subprocess.run([*command, *address], capture_output=True, text=True, timeout=120, check=False, env=environ)


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
    assert result["bought"] > FANS / 4
    assert (result["books_wrong"], result["failed"], result["server_errors"]) == ([], {}, 0)
    async with httpx.AsyncClient() as client:
        charges = (await client.get(f"{suite.engines['sandbox_url']}/charges", params={"limit": 1000})).json()
    assert len({charge["method"] for charge in charges["charges"]}) >= 8
    assert any(charge["refunded_minor"] for charge in charges["charges"]), "some payments failed, as intended"
