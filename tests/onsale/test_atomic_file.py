"""A file written atomically is on disk, under its name, before it is used."""

import os
from pathlib import Path

import pytest

from onsale.atomic_file import atomic_write


def test_the_file_is_on_disk_before_it_is_renamed_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(f"{path.name} on disk with {path.stat().st_size} bytes" if path.is_file() else "folder on disk")
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        steps.append("renamed")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    atomic_write(tmp_path / "keys.json", "secret\n")
    assert steps == ["keys.json.new on disk with 7 bytes", "renamed", "folder on disk"]
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
