"""Letters that no paper shows are named when an event is applied."""

import asyncio
from pathlib import Path

from tests.support.running.command_line import Command, event_file
from tests.support.running.suite import RunningSuite


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
