"""`onsale keys`: a file only its owner may read, changed whole, by one command at a time, and clear words."""

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from onsale.cli import app as cli
from onsale.cli import context
from onsale.local import key_file
from shared.security.key_rotation import Purpose
from shared.security.tokens import Keyring


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    key_file.service_secrets(tmp_path)
    return tmp_path


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data_dir: Path
) -> Callable[..., tuple[int, str]]:
    """Runs `onsale keys …`; the exit code and all it said."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["onsale", "keys", *words, "--data-dir", str(data_dir)])
        for console in (context.out, context.err):
            console.width = 200
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return run


def kids(data_dir: Path, purpose: Purpose = "pass") -> list[str]:
    return [key.kid for key in key_file.rotating_keys(data_dir).rings[purpose]]


def test_a_key_is_announced_once_and_can_be_hurried(command, data_dir):
    secrets = json.loads((data_dir / "keys.json").read_text())["rotating"]["rings"]["pass"][0]["secret"]
    code, said = command("rotate", "pass")
    assert code == 0
    assert "k2 is announced" in said
    code, said = command("rotate", "pass")
    assert (code, "announced already" in said) == (2, True)
    code, said = command("rotate", "pass", "--now")
    assert (code, "will refuse new passes" in said) == (0, True)
    assert kids(data_dir) == ["k1", "k2"]
    code, said = command("show")
    assert code == 0
    for word in ("queue-token", "announced", "signing", "rotate --now"):
        assert word in said
    assert secrets not in said


def test_only_a_key_that_signs_no_more_is_retired_and_only_on_demand(command, data_dir, monkeypatch):
    assert "k1 is signing" in command("retire", "queue-token", "k1", "--now")[1]
    command("rotate", "queue-token", "--now")
    assert "k2 is announced" in command("retire", "queue-token", "k2", "--now")[1]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 60)
    code, said = command("retire", "queue-token", "k1")
    assert (code, "ends by itself" in said, "lost to its fan" in said) == (2, True, True)
    assert "no key k9" in command("retire", "queue-token", "k9", "--now")[1]
    assert kids(data_dir, "queue_token") == ["k1", "k2"]
    code, said = command("retire", "queue-token", "k1", "--now")
    assert (code, "lost to its fan" in said, "k1 is retired" in said) == (0, True, True)
    command("rotate", "queue-token")
    assert kids(data_dir, "queue_token") == ["k2", "k3"], "what is gone is forgotten"


def test_the_file_is_its_owners_only_and_whole(command, data_dir):
    command("rotate", "pass")
    assert (data_dir / "keys.json").stat().st_mode & 0o777 == 0o600
    others = json.loads((data_dir / "keys.json").read_text())
    assert {"checkout", "customer", "order_token", "holder"} <= set(others)
    before = (data_dir / "keys.json").read_bytes()
    with suppress(RuntimeError), key_file.keys_to_change(data_dir) as ring:
        ring.rings["pass"] = []
        raise RuntimeError("half way")
    assert (data_dir / "keys.json").read_bytes() == before


def test_two_commands_at_once_lose_nothing(data_dir):
    def rotate() -> None:
        with key_file.keys_to_change(data_dir) as ring:
            ring.rotate("pass", b"x" * 32, signs_from_s=int(time.time()))

    threads = [threading.Thread(target=rotate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kids(data_dir) == [f"k{n}" for n in range(1, 10)]


def test_what_does_not_rotate_is_not_rotated(command, data_dir):
    before = (data_dir / "keys.json").read_bytes()
    assert command("rotate", "checkout")[0] == 2
    assert (data_dir / "keys.json").read_bytes() == before


def test_a_broken_file_is_one_clear_line(command, data_dir):
    (data_dir / "keys.json").write_text("{")
    code, said = command("rotate", "pass")
    assert code == 2
    assert said.startswith("onsale: ")
    assert "JSON" in said
    assert (data_dir / "keys.json").read_text() == "{"


def test_a_data_directory_of_before_keeps_its_keys(tmp_path):
    old = {name: Keyring({"k1": bytes([n]) * 32}).text() for n, name in enumerate(
        ("service", "queue_token", "pass", "order_token", "checkout", "customer", "sandbox_webhook"))}  # fmt: skip
    (tmp_path / "keys.json").write_text(json.dumps(old))
    settings = key_file.service_secrets(tmp_path)
    assert settings["ONSALE_CHECKOUT_KEYS"] == old["checkout"]
    assert settings["ONSALE_KEYS_FILE"] == str(tmp_path / "keys.json")
    ring = key_file.rotating_keys(tmp_path).keyring("pass", 1.0)
    assert ring.keys == {"k1": bytes([2]) * 32}
    assert key_file.service_secrets(tmp_path) == settings
