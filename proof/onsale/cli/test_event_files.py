"""Letters that no paper shows are named when an event is applied."""

import asyncio
from pathlib import Path
from typing import Any

import yaml

from tests.support.running.command_line import Command
from tests.support.running.suite import RunningSuite


def event_file(tmp_path: Path, event_id: str, **changes: Any) -> str:
    event = {
        "event_id": event_id, "name": "Before", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z",
        "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}],
        "room": {"rate_per_s": 5}, "fees": [], **changes,
    }  # fmt: skip
    path = tmp_path / "event.yaml"
    path.write_text(yaml.safe_dump(event))
    return str(path)


async def test_letters_that_no_paper_shows_are_named_when_the_event_is_applied(
    suite: RunningSuite, onsale: Command, tmp_path: Path
) -> None:
    key = ("--data-dir", str(suite.data_dir))
    for options in (("--dry-run",), ()):
        path = event_file(tmp_path, "t-unprintable", name="東京 Night 🎉", venue="नई दिल्ली")
        applied = await asyncio.to_thread(onsale, "events", "apply", path, *options, *key)
        assert applied.returncode == 0
        assert applied.stderr.count("warning: Tickets and receipts cannot show") == 1
        assert "🎉 (U+1F389)" in applied.stderr
        assert "न (U+0928)" in applied.stderr
        assert "東" not in applied.stderr
    path = event_file(tmp_path, "t-printable", name="東京 Night", venue="서울")
    assert not (await asyncio.to_thread(onsale, "events", "apply", path, *key)).stderr
