"""A pass sealed for neighbours: cheap to check for those who share the secret, and nothing more than its signature."""

import dataclasses
import time

import orjson
import pytest

from shared.problems import BadCredential
from shared.settings import development_keys
from shared.tokens import Keyring, Pass, PassReader, b64, sign_pass, unb64

KEYS, SEAL = development_keys("pass"), development_keys("service")
NOW = int(time.time())
PASS = Pass("arena", "fan", "1-0-7-1", 1, 0, 7, 6, NOW, NOW + 900)


def reader(*, seal: Keyring | None = SEAL, passes: Keyring = KEYS) -> PassReader:
    return PassReader(passes.public(), seal=seal)


def with_claims(token: str, old: bytes, new: bytes) -> str:
    header, claims, signature = token.split(".")
    told = unb64(claims)
    assert old in told
    return ".".join((header, b64(told.replace(old, new)), signature))


def test_whoever_shares_the_secret_needs_no_signature() -> None:
    header, claims, _ = sign_pass(KEYS, PASS, seal=SEAL).split(".")
    unsigned = f"{header}.{claims}.{b64(bytes(64))}"
    assert reader().read(unsigned, now_s=NOW) == PASS
    with pytest.raises(BadCredential):
        reader(seal=None).read(unsigned, now_s=NOW)


def test_everybody_else_reads_the_same_pass_by_its_signature() -> None:
    token = sign_pass(KEYS, PASS, seal=SEAL)
    assert reader(seal=None).read(token, now_s=NOW) == PASS
    assert orjson.loads(unb64(token.split(".")[1]))["sub"] == "fan"
    other = Keyring({"other": bytes(range(32))})
    assert reader(seal=other).read(token, now_s=NOW) == PASS  # a seal we cannot read is no reason to refuse
    assert reader().read(sign_pass(KEYS, PASS), now_s=NOW) == PASS


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sub":"fan"', b'"sub":"you"'), (b'"aud":"arena"', b'"aud":"other"'), (b',"seal":"', b',"x":1,"seal":"'),
        (b'"}', b'","x":"1"}'), (b'"epo":1', b'"epo":2'),
    ],
)  # fmt: skip
def test_changed_claims_break_the_seal(old: bytes, new: bytes) -> None:
    with pytest.raises(BadCredential):
        reader().read(with_claims(sign_pass(KEYS, PASS, seal=SEAL), old, new), now_s=NOW)


def test_a_seal_does_not_travel_to_another_pass() -> None:
    sealed = unb64(sign_pass(KEYS, PASS, seal=SEAL).split(".")[1])
    seal = sealed[sealed.index(b',"seal"') :]
    header, claims, _ = sign_pass(KEYS, dataclasses.replace(PASS, holder="thief")).split(".")
    with pytest.raises(BadCredential):
        reader().read(f"{header}.{b64(unb64(claims)[:-1] + seal)}.{b64(bytes(64))}", now_s=NOW)


def test_a_retired_pass_key_takes_its_seals_along() -> None:
    token = sign_pass(KEYS, PASS, seal=SEAL)
    with pytest.raises(BadCredential):
        reader(passes=Keyring({"new": bytes(range(32))})).read(token, now_s=NOW)


def test_the_secret_of_a_seal_is_not_the_passes_own() -> None:
    with pytest.raises(BadCredential):
        reader().read(forged(Keyring({SEAL.kid: bytes(32)})), now_s=NOW)


def forged(keys: Keyring) -> str:
    header, claims, _ = sign_pass(KEYS, PASS, seal=keys).split(".")
    return f"{header}.{claims}.{b64(bytes(64))}"
