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


GOOD = """event_id: arena
name: Arena
venue: Berlin
currency: {currency}
starts_at: 2030-01-01T20:00:00Z
sections:
  - {{section_id: {section_id}, name: Floor, kind: ga, capacity: 10, price_minor: 1000}}
"""


@pytest.mark.parametrize("currency", ["EUE", "XYZ", "XXX", "BGN", "eur"])
def test_a_currency_that_is_not_in_use_is_refused_with_its_line(tmp_path: Path, currency: str) -> None:
    path = tmp_path / "event.yaml"
    path.write_text(GOOD.format(currency=currency, section_id="A"))
    with pytest.raises(event_files.BadEventFile, match=r"event\.yaml:4: currency: .*such as EUR"):
        event_files.read(path)
    path.write_text(GOOD.format(currency="HUF", section_id="A"))
    assert event_files.read(path).currency == "HUF"


def test_a_refusal_shows_no_regular_expression(tmp_path: Path) -> None:
    path = tmp_path / "event.yaml"
    path.write_text(GOOD.format(currency="EUR", section_id="A-1").replace("arena", "-arena"))
    with pytest.raises(event_files.BadEventFile) as refused:
        event_files.read(path)
    assert "letters A-Z, digits and _" in str(refused.value)
    assert not set(r"^[]{}\$") & set(str(refused.value).replace(str(path), ""))
