"""Pictures beside an event file: checked, uploaded when the file is applied, written beside it when it is read back."""

from pathlib import Path

import pytest

from onsale import event_files
from onsale.backup.command import _files
from onsale.event_files import BadEventFile
from tests.support.pictures import PAGE, PNG, SVG, pictures_of, write_event


@pytest.mark.parametrize("name", [
    "../secret.png", "/etc/secret.png", "a/b.png", "..png", ".png", "secret", "a.png/..", "a\nb.png", "C:a.png",
    "..\\secret.png",
])  # fmt: skip
def test_a_picture_lies_beside_the_file(tmp_path: Path, name: str) -> None:
    path = write_event(tmp_path, "t-beside", {"name": "Polar", "logo": name})
    with pytest.raises(BadEventFile, match=r"brand\.logo"):
        event_files.read(path)


def test_a_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.svg").write_bytes(SVG)
    (tmp_path / "here").mkdir()
    path = write_event(tmp_path / "here", "t-link")
    (tmp_path / "here" / "logo.svg").unlink()
    (tmp_path / "here" / "logo.svg").symlink_to(tmp_path / "elsewhere" / "secret.svg")
    with pytest.raises(BadEventFile, match="a link to another folder"):
        pictures_of(path)


@pytest.mark.parametrize(("content", "words"), [
    (PAGE, "document type"), (b"secret=1", "not a picture"), (PNG + bytes(256 * 1024), "256 KiB"),
])  # fmt: skip
def test_what_is_no_picture_is_refused_before_anything_is_sent(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(BadEventFile, match=words):
        pictures_of(write_event(tmp_path, "t-no-picture", logo=content))


def test_a_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_event(tmp_path, "t-missing")
    (tmp_path / "hall.png").unlink()
    with pytest.raises(BadEventFile, match=r"hall\.png: No such file"):
        pictures_of(path)


def test_a_backup_takes_them_along(tmp_path: Path) -> None:
    path = write_event(tmp_path, "t-backup")
    files = _files(tmp_path, [path, path], {})
    assert files == {f"events/{name}": tmp_path / name for name in ("event.yaml", "logo.svg", "hall.png")}
