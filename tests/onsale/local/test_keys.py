"""`onsale keys` and the key file: readable by its owner only, replaced as a whole, by one command at a time."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from onsale.local import key_file
from onsale.maintenance.keys import READ_WITHIN_S
from shared.security.key_rotation import READ_EVERY_S, Purpose
from shared.security.tokens import Keyring
from tests.support.running.program import Command


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    key_file.service_secrets(tmp_path)
    return tmp_path


@pytest.fixture
def command(onsale: Command, data_dir: Path) -> Callable[..., tuple[int, str]]:
    """Runs `onsale keys …`; its exit code and output."""

    def run(*arguments: str) -> tuple[int, str]:
        result = onsale("keys", *arguments, "--data-dir", str(data_dir))
        return result.returncode, result.stdout + result.stderr

    return run


def key_ids(data_dir: Path, purpose: Purpose = "pass") -> list[str]:
    return [key.kid for key in key_file.rotating_keys(data_dir).rings[purpose]]


def test_a_new_key_is_announced_first_and_signs_at_once_with_now(command, data_dir):
    secret = json.loads((data_dir / "keys.json").read_text())["rotating"]["rings"]["pass"][0]["secret"]
    code, output = command("rotate", "pass")
    assert code == 0
    assert "k2 is announced" in output
    code, output = command("rotate", "pass")
    assert (code, "announced already" in output) == (2, True)
    code, output = command("rotate", "pass", "--now")
    assert (code, "will refuse new passes" in output) == (0, True)
    assert key_ids(data_dir) == ["k1", "k2"]
    code, output = command("show")
    assert code == 0
    for text in ("queue-token", "announced", "signing", "rotate --now"):
        assert text in output
    assert secret not in output


def test_a_key_that_is_needed_now_signs_once_every_process_has_read_it(command, data_dir):
    """A process reads the file every `READ_EVERY_S`; one that has not refuses what the new key signs."""
    command("rotate", "service", "--now")
    signs_in_s = key_file.rotating_keys(data_dir).rings["service"][-1].signs_from_s - time.time()
    assert READ_EVERY_S + 1 < signs_in_s <= READ_WITHIN_S


def test_a_signing_key_is_not_retired_and_any_other_only_with_now(command, data_dir, monkeypatch):
    assert "k1 is signing" in command("retire", "queue-token", "k1", "--now")[1]
    command("rotate", "queue-token", "--now")
    assert "k2 is announced" in command("retire", "queue-token", "k2", "--now")[1]
    real_time = time.time
    monkeypatch.setattr(time, "time", lambda: real_time() + 60)
    code, output = command("retire", "queue-token", "k1")
    assert (code, "ends by itself" in output, "lost to its fan" in output) == (2, True, True)
    assert "no key k9" in command("retire", "queue-token", "k9", "--now")[1]
    assert key_ids(data_dir, "queue_token") == ["k1", "k2"]
    code, output = command("retire", "queue-token", "k1", "--now")
    assert (code, "lost to its fan" in output, "k1 is retired" in output) == (0, True, True)
    command("rotate", "queue-token")
    assert key_ids(data_dir, "queue_token") == ["k2", "k3"], "a retired key is deleted"


def test_only_the_owner_can_read_the_key_file_and_a_failed_change_leaves_it_as_it_was(command, data_dir):
    command("rotate", "pass")
    assert (data_dir / "keys.json").stat().st_mode & 0o777 == 0o600
    stored = json.loads((data_dir / "keys.json").read_text())
    assert {"checkout", "customer", "order_token", "holder"} <= set(stored)
    before = (data_dir / "keys.json").read_bytes()
    with suppress(RuntimeError), key_file.keys_to_change(data_dir) as ring:
        ring.rings["pass"] = []
        raise RuntimeError("half way")
    assert (data_dir / "keys.json").read_bytes() == before


def test_simultaneous_commands_lose_no_key(data_dir):
    def rotate() -> None:
        with key_file.keys_to_change(data_dir) as ring:
            ring.rotate("pass", b"x" * 32, signs_from_s=int(time.time()))

    threads = [threading.Thread(target=rotate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert key_ids(data_dir) == [f"k{n}" for n in range(1, 10)]


def test_a_key_that_does_not_rotate_is_refused(command, data_dir):
    before = (data_dir / "keys.json").read_bytes()
    assert command("rotate", "checkout")[0] == 2
    assert (data_dir / "keys.json").read_bytes() == before


def test_a_broken_key_file_is_reported_and_kept(command, data_dir):
    (data_dir / "keys.json").write_text("{")
    code, output = command("rotate", "pass")
    assert code == 2
    assert output.startswith("onsale: ")
    assert "JSON" in output
    assert (data_dir / "keys.json").read_text() == "{"


def test_a_key_file_in_the_older_format_keeps_its_keys(tmp_path):
    old = {name: Keyring({"k1": bytes([n]) * 32}).text() for n, name in enumerate(
        ("service", "queue_token", "pass", "order_token", "checkout", "customer", "sandbox_webhook"))}  # fmt: skip
    (tmp_path / "keys.json").write_text(json.dumps(old))
    settings = key_file.service_secrets(tmp_path)
    assert settings["ONSALE_CHECKOUT_KEYS"] == old["checkout"]
    assert settings["ONSALE_KEYS_FILE"] == str(tmp_path / "keys.json")
    ring = key_file.rotating_keys(tmp_path).keyring("pass", 1.0)
    assert ring.keys == {"k1": bytes([2]) * 32}
    assert key_file.service_secrets(tmp_path) == settings
