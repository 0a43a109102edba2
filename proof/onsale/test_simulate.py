"""`onsale simulate` fails in a room that is closed.

From README alone: a fresh clone, nothing installed, `make run`, and a ticket is sold. Needs the package index.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from onsale.local.ports import free_port
from tests.support.programs import find_program
from tests.support.running.program import Command, Program
from tests.support.running.suite import RunningSuite
from tests.support.wait import until


async def test_a_simulation_of_a_closed_room_fails(suite: RunningSuite, onsale: Command, tmp_path: Path) -> None:
    event_id = await suite.open_event(open=False)
    report = tmp_path / "result.json"
    options = ["--event-id", event_id, "--fans", "5", "--arrive-over", "0", "--json", str(report)]
    run = await asyncio.to_thread(onsale, "simulate", *options, "--url", suite.url)
    assert (run.returncode, "nobody joined: nothing was tried" in run.stdout) == (1, True)
    assert json.loads(report.read_text())["failures"] == ["nobody joined: nothing was tried"]


ROOT = Path(__file__).parents[2]
FROM_CLONE_TO_TICKET_S = 300


@pytest.mark.timeout(FROM_CLONE_TO_TICKET_S + 60)
def test_a_fresh_clone_sells_a_ticket_within_five_minutes(tmp_path: Path) -> None:
    began, clone, port = time.monotonic(), tmp_path / "onsale", free_port()
    subprocess.run([str(find_program("git")), "clone", "-q", str(ROOT), str(clone)], check=True, timeout=60)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONSALE_", "VIRTUAL_ENV"))}
    command = [str(find_program("make")), "-C", str(clone), "run", f"ARGS=--port {port}"]
    running = Program(command, tmp_path / "make.log", env=kept)
    running.start()
    try:

        def ready() -> bool:
            assert running.is_running, running.log_tail()
            return httpx.get(f"http://localhost:{port}/readyz", timeout=5).status_code == 200

        until(ready, what="make run", timeout_s=FROM_CLONE_TO_TICKET_S)
        page = (clone / "docs" / "start" / "api-by-example.md").read_text()
        [script] = re.findall(r"```sh\n(.*?)```", page, re.S)
        script = script.replace("localhost:8000", f"localhost:{port}")
        sold = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert sold.returncode == 0, sold.stderr
        assert time.monotonic() - began < FROM_CLONE_TO_TICKET_S
    finally:
        running.end(signal.SIGTERM)  # which make passes on
