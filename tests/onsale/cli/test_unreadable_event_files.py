"""An event file that cannot be read is refused by a sentence that names it, whatever is in it."""

from pathlib import Path

import pytest

from onsale import event_files

UNREADABLE = {
    "a minute of 61 seconds": b"starts_at: 2026-12-18T20:00:60Z\n",
    "a month of 99 days": b"starts_at: 2026-12-99\n",
    "a time that is none": b"starts_at: !!timestamp soon\n",
    "bytes that are none": b"name: !!binary x\n",
    "a mapping as a key": b"? {a: b}\n: c\n",
    "a list in itself": b"sections: &a [*a]\n",
    "many brackets": b"[" * 5_000,
    "no text": b"\xff\xfe\x00",
    "a tab": b"a:\n\tb: c\n",
    "nothing": b"",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_event_file_is_refused_by_a_sentence(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "event.yaml"
    path.write_bytes(text)
    with pytest.raises(event_files.BadEventFile, match=r"event\.yaml"):
        event_files.read(path)
