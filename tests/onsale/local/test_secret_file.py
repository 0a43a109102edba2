"""A secret is on the disk, under its name, before anybody relies on it."""

import os
from pathlib import Path

import pytest

from onsale.local.secret_file import write_secret


def test_file_and_folder_reach_the_disk_before_the_name_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    synced, renamed = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        at = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append(f"{at.name} on disk with {at.stat().st_size} bytes" if at.is_file() else "folder on disk")
        synced(descriptor)

    def replace(self: Path, target: Path) -> Path:
        done.append("renamed")
        return renamed(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_secret(tmp_path / "keys.json", "secret\n")
    assert done == ["keys.json.new on disk with 7 bytes", "renamed", "folder on disk"]
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
