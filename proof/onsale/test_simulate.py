"""`onsale simulate` fails in a room that is closed."""

import asyncio
import json
from pathlib import Path

from tests.support.running.command_line import Command
from tests.support.running.suite import RunningSuite


async def test_a_simulation_of_a_closed_room_fails(suite: RunningSuite, onsale: Command, tmp_path: Path) -> None:
    event_id = await suite.open_event(open=False)
    report = tmp_path / "result.json"
    options = ["--event-id", event_id, "--fans", "5", "--arrive-over", "0", "--json", str(report)]
    run = await asyncio.to_thread(onsale, "simulate", *options, "--url", suite.url)
    assert (run.returncode, "nobody joined: nothing was tried" in run.stdout) == (1, True)
    assert json.loads(report.read_text())["failures"] == ["nobody joined: nothing was tried"]
