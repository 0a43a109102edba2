"""Key rotation: a key is accepted everywhere before it signs, and until everything it signed has expired."""

import json
from pathlib import Path

import pytest

from services.gateway.settings import Settings
from services.gateway.tuning import DEFAULTS
from shared.errors.problems import BadCredential
from shared.security.key_reload import KeyReloader
from shared.security.key_rotation import HISTORY_MAX, JWKS_MAX_AGE_S, OVERLAPS, Key, KeyChange, RotatingKeys
from shared.security.tokens import Keyring, Pass, PassReader, QueueToken, QueueTokens, b64, sign_pass

TOKEN = QueueToken("show", 1, 0, 7, "holder", 0)
PASS = Pass("show", "holder", "1-0-7-1", 1, 0, 7, 6, 0, 2_000_000)
SECRETS = [bytes([n]) * 32 for n in range(5)]


def key(kid: str = "k1", secret: bytes = SECRETS[1], *, signs_from_s: int = 0, gone_at_s: int | None = None) -> Key:
    return Key(kid=kid, secret=b64(secret), signs_from_s=signs_from_s, gone_at_s=gone_at_s)


def keys() -> RotatingKeys:
    return RotatingKeys(rings={purpose: [key()] for purpose in OVERLAPS})


def write(path: Path, keys: RotatingKeys) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"checkout": "k1:x", "rotating": keys.model_dump()}))
    new.replace(path)


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_key_is_announced_then_signs_then_retires_and_is_gone():
    ring = keys()
    ring.rotate("pass", SECRETS[2], signs_from_s=1_000)
    life_s = OVERLAPS["pass"].life_s

    def stages(now_s: float) -> list[str]:
        return [stage for _, stage in ring.stages("pass", now_s)]

    assert stages(999) == ["signing", "announced"]
    assert stages(1_000) == ["retiring", "signing"]
    assert stages(999 + life_s) == ["retiring", "signing"]
    assert stages(1_000 + life_s) == ["gone", "signing"]
    assert [list(ring.keyring("pass", at).keys) for at in (999, 1_000, 1_000 + life_s)] == [
        ["k1", "k2"], ["k2", "k1"], ["k2"],
    ]  # fmt: skip
    ring.forget(1_000 + life_s)
    assert [key.kid for key in ring.rings["pass"]] == ["k2"]
    assert ring.rotate("pass", SECRETS[3], signs_from_s=9_000_000).kid == "k3", "a kid is never used twice"


def test_the_overlaps_are_longer_than_the_tokens_and_caches_they_cover():
    assert OVERLAPS["pass"].announce_s >= 2 * JWKS_MAX_AGE_S
    assert OVERLAPS["pass"].life_s >= 2 * 86_400, "a session and a hold last a day at most, each"
    assert OVERLAPS["queue_token"].life_s > DEFAULTS.queue_cookie_s


async def test_services_follow_the_file_and_the_clock_without_a_restart(tmp_path):
    path, clock, ring = tmp_path / "keys.json", Clock(), keys()
    write(path, ring)
    settings = Settings(keys_file=path)
    reloader = KeyReloader(path, settings, clock=clock)
    tokens, passes = QueueTokens(settings.queue_token_keys), PassReader(settings.pass_public_keys)
    await reloader.reload()
    old_token, old_pass = tokens.sign(TOKEN), sign_pass(ring.keyring("pass", clock.now_s), PASS)
    assert passes.read(old_pass, now_s=0) == PASS
    ring.rotate("queue_token", SECRETS[2], signs_from_s=1_000_060)
    ring.rotate("pass", SECRETS[2], signs_from_s=1_000_060)
    write(path, ring)
    await reloader.reload()
    assert list(settings.pass_public_keys.keys) == ["k1", "k2"], "published before it signs"
    assert tokens.sign(TOKEN) == old_token
    announced = QueueTokens(Keyring({"k2": SECRETS[2]})).sign(TOKEN)
    assert tokens.read(announced) == TOKEN, "accepted before it signs"
    clock.now_s += 60
    await reloader.reload()
    assert tokens.sign(TOKEN) == announced
    new_pass = sign_pass(ring.keyring("pass", clock.now_s), PASS)
    assert passes.read(new_pass, now_s=0) == passes.read(old_pass, now_s=0) == PASS
    assert tokens.read(old_token) == TOKEN
    ring.end("queue_token", "k1", at_s=int(clock.now_s))
    ring.end("pass", "k1", at_s=int(clock.now_s))
    write(path, ring)
    await reloader.reload()
    for read, old in ((tokens.read, old_token), (lambda text: passes.read(text, now_s=0), old_pass)):
        with pytest.raises(BadCredential):
            read(old)
    assert (tokens.read(announced), passes.read(new_pass, now_s=0)) == (TOKEN, PASS)


def broken_files() -> list[tuple[str | None, str]]:
    """Files that must be refused (None: deleted), and a part of the reason that the log must name."""
    complete = {"rotating": keys().model_dump()}

    def ring(*members: Key) -> str:
        rings = {**complete["rotating"]["rings"], "pass": [member.model_dump() for member in members]}
        return json.dumps({"rotating": {"rings": rings}})

    return [
        (None, "No such file"), ("", "JSON"), ("{}", "rotating"), (json.dumps(complete)[:-20], "JSON"),
        ("x" * 200_000, "too large"),
        (json.dumps({"rotating": {"rings": {"pass": []}}}), "pass"),
        (json.dumps({"rotating": {"rings": {"pass": [{"kid": "k1", "secret": "c2hvcnQ", "signs_from_s": 0}]}}}), "32"),
        (ring(key(gone_at_s=5)), "newest"),
        (ring(key(), key("k1", SECRETS[2], signs_from_s=5)), "same kid"),
        (ring(key(signs_from_s=9), key("k2", signs_from_s=5)), "oldest first"),
        (ring(key(gone_at_s=4), key("k2", signs_from_s=5)), "gone before"),
        (ring(key(signs_from_s=4_000_000_000)), "clock"),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), broken_files(), ids=[reason for _, reason in broken_files()])
async def test_a_broken_key_file_is_refused_with_a_reason_and_the_old_keys_stay(tmp_path, caplog, text, reason):
    path = tmp_path / "keys.json"
    write(path, keys())
    settings = Settings(keys_file=path)
    reloader = KeyReloader(path, settings, clock=Clock())
    await reloader.reload()
    path.unlink()
    if text is not None:
        path.write_text(text)
    caplog.clear()
    for _ in range(3):
        await reloader.reload()
    (refused,) = [record for record in caplog.records if record.getMessage() == "keys.rejected"]
    assert reason in refused.data["reason"]
    assert b64(SECRETS[1]) not in str(refused.data)
    assert settings.queue_token_keys.keys == {"k1": SECRETS[1]}
    if reason != "clock":
        with pytest.raises(ValueError, match="keys"):
            Settings(keys_file=path)
    ring = keys()
    ring.rotate("queue_token", SECRETS[2], signs_from_s=5)
    write(path, ring)
    await reloader.reload()
    assert settings.queue_token_keys.kid == "k2", "a good file after a bad one is used"


async def test_a_change_of_keys_is_logged_with_its_operator(tmp_path, caplog):
    path, ring = tmp_path / "keys.json", keys()
    write(path, ring)
    reloader = KeyReloader(path, Settings(keys_file=path), clock=Clock())
    ring.rotate("queue_token", SECRETS[2], signs_from_s=999_999)
    for at_s in range(HISTORY_MAX + 5):
        ring.record(KeyChange(at_s=at_s, by="ada", action="rotate", purpose="queue_token", kid="k2"))
    write(path, ring)
    await reloader.reload()
    (changed,) = [record.data for record in caplog.records if record.getMessage() == "keys.changed"]
    assert (changed["before"], changed["now"], changed["signs"]) == (["k1"], ["k2", "k1"], "k2")
    assert changed["last_change"]["by"] == "ada"
    assert len(ring.history) == HISTORY_MAX
    assert "secret" not in repr(ring)


async def test_a_keyring_in_the_settings_overrides_the_key_file(tmp_path):
    path, configured = tmp_path / "keys.json", Keyring({"mine": SECRETS[4]})
    write(path, keys())
    settings = Settings(keys_file=path, queue_token_keys=configured)
    await KeyReloader(path, settings, clock=Clock()).reload()
    assert settings.queue_token_keys.kid == "mine"
    assert settings.pass_public_keys.kid == "k1"


def test_a_replaced_keyring_signs_with_its_new_key():
    ring = Keyring({"k1": SECRETS[1]})
    assert PassReader(ring.public()).read(sign_pass(ring, PASS), now_s=0) == PASS
    ring.replace(Keyring({"k2": SECRETS[2], "k1": SECRETS[1]}))
    fresh = sign_pass(ring, PASS)
    assert PassReader(Keyring({"k2": SECRETS[2]}).public()).read(fresh, now_s=0) == PASS
