"""Letters that no paper shows are named when an event is applied.

Pictures are uploaded when an event file is applied, and written beside it when it is read back.
"""

import asyncio
from pathlib import Path

from tests.support.pictures import JPEG, SVG, pictures_of, write_event
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


async def test_pictures_are_applied_with_the_file_and_written_beside_it(
    suite: RunningSuite, onsale: Command, tmp_path: Path
) -> None:
    event_id, key = "t-pictures", ("--data-dir", str(suite.data_dir))

    async def run(*arguments: str) -> str:
        result = await asyncio.to_thread(onsale, *arguments, *key)
        assert result.returncode == 0, result.stderr
        return result.stdout

    path = str(write_event(tmp_path, event_id))
    assert "would change inventory, orders, queue" in await run("events", "apply", path, "--dry-run")
    await run("events", "apply", path)
    assert f"{event_id}: applied, changed nothing" in await run("events", "apply", path)
    (tmp_path / "hall.png").write_bytes(JPEG)
    assert f"{event_id}: would change inventory\n" in await run("events", "apply", path, "--dry-run")
    assert f"{event_id}: would change inventory\n" in await run("events", "apply", path, "--dry-run"), (
        "it changes nothing"
    )
    await run("events", "apply", path)
    (tmp_path / "shown").mkdir()
    await run("events", "show", event_id, "--to", str(tmp_path / "shown"))
    shown = tmp_path / "shown" / f"{event_id}.yaml"
    assert pictures_of(shown) == {"logo.svg": SVG, "hall.png": JPEG}
    assert f"{event_id}: would change nothing" in await run("events", "apply", str(shown), "--dry-run")
    await run("rehearse", event_id, "--fans", "1")
    async with suite.operator() as operator:
        for name, content in (("logo.svg", SVG), ("hall.png", JPEG)):
            copy = await operator.get(f"/admin/inventory/events/{event_id}-rehearsal/pictures/{name}")
            assert copy.content == content, "a rehearsal looks like the event"
