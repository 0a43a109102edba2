"""Sealed passes: services that share the secret check the seal, which is cheap; all others check the signature."""

import dataclasses
import os
import time
from functools import partial

import orjson
import pytest

from shared.errors.problems import BadCredential
from shared.security.tokens import (
    Keyring,
    Pass,
    PassReader,
    QueueToken,
    QueueTokens,
    b64,
    development_keys,
    read_order_token,
    sign_order_token,
    sign_pass,
    unb64,
)

KEYS, SEAL = development_keys("pass"), development_keys("service")
NOW = int(time.time())
PASS = Pass("arena", "fan", "1-0-7-1", 1, 0, 7, 6, NOW, NOW + 900)


def reader(*, seal: Keyring | None = SEAL, passes: Keyring = KEYS) -> PassReader:
    return PassReader(passes.public(), seal=seal)


def test_a_reader_with_the_secret_checks_the_seal_instead_of_the_signature() -> None:
    token = unsigned(sealed_claims())
    assert reader().read(token, now_s=NOW) == PASS
    with pytest.raises(BadCredential):
        reader(seal=None).read(token, now_s=NOW)


def test_a_reader_without_the_secret_checks_the_signature() -> None:
    token = sign_pass(KEYS, PASS, seal=SEAL)
    assert reader(seal=None).read(token, now_s=NOW) == PASS
    assert orjson.loads(unb64(token.split(".")[1]))["sub"] == "fan"
    other = Keyring({"other": bytes(range(32))})
    assert reader(seal=other).read(token, now_s=NOW) == PASS  # an unknown seal is ignored
    assert reader().read(sign_pass(KEYS, PASS), now_s=NOW) == PASS


def unsigned(claims: bytes) -> str:
    """A pass with these claims and no signature, so that only its seal can make it valid."""
    return f"{sign_pass(KEYS, PASS).split('.')[0]}.{b64(claims)}.{b64(bytes(64))}"


def sealed_claims(*, holder: str = "fan", seal: Keyring = SEAL) -> bytes:
    return unb64(sign_pass(KEYS, dataclasses.replace(PASS, holder=holder), seal=seal).split(".")[1])


def forged_claims() -> dict[str, bytes]:
    claims = sealed_claims()
    seal = claims[claims.index(b',"seal"') :]
    thief = sealed_claims(holder="thief")
    changes = [
        (b'"sub":"fan"', b'"sub":"you"'), (b'"aud":"arena"', b'"aud":"other"'), (b',"seal":"', b',"x":1,"seal":"'),
        (b'"}', b'","x":"1"}'), (b'"epo":1', b'"epo":2'),
    ]  # fmt: skip
    return {
        **{f"changed {old.decode()}": claims.replace(old, new) for old, new in changes},
        "a seal copied to another pass": thief[: thief.index(b',"seal"')] + seal,
        "a seal made with another secret": sealed_claims(seal=Keyring({SEAL.kid: bytes(32)})),
    }


@pytest.mark.parametrize("forged", forged_claims().values(), ids=forged_claims())
def test_a_seal_of_other_claims_or_of_another_secret_is_refused(forged: bytes) -> None:
    assert reader().read(unsigned(sealed_claims()), now_s=NOW) == PASS
    assert forged != sealed_claims()
    with pytest.raises(BadCredential):
        reader().read(unsigned(forged), now_s=NOW)


def test_seals_of_a_removed_pass_key_are_refused() -> None:
    token = sign_pass(KEYS, PASS, seal=SEAL)
    with pytest.raises(BadCredential):
        reader(passes=Keyring({"new": bytes(range(32))})).read(token, now_s=NOW)


def variants(token: str, count: int) -> list[str]:
    """The same claims under made-up signatures, and under other spellings of the good one."""
    signed, _, signature = token.rpartition(".")
    made_up = [f"{signed}.{b64(os.urandom(64))}" for _ in range(count)]
    return [
        *made_up,
        f"{token}==",
        f"{signed}.{signature[:-1]}{chr(ord(signature[-1]) + 1)}",
        f"{signed}.",
        f"{signed}.AA",
    ]


def test_a_pass_has_one_spelling_however_often_its_signature_is_made_up() -> None:
    token, caching = sign_pass(KEYS, PASS, seal=SEAL), reader()
    assert caching.read(token, now_s=NOW) == PASS
    for variant in variants(token, 4_000):
        with pytest.raises(BadCredential):
            caching.read(variant, now_s=NOW)
    assert caching.read(token, now_s=NOW) == PASS
    assert len(caching._cache) == 1


def test_a_made_up_signature_is_accepted_only_until_the_good_one_was_read() -> None:
    token, caching = sign_pass(KEYS, PASS, seal=SEAL), reader()
    first, *others = variants(token, 5)
    assert caching.read(first, now_s=NOW) == PASS
    assert caching.read(token, now_s=NOW) == PASS
    for variant in (first, *others):
        with pytest.raises(BadCredential):
            caching.read(variant, now_s=NOW)
    header, claims, signature = token.split(".")
    with pytest.raises(BadCredential):
        reader().read(f"{header}.{claims}==.{signature}", now_s=NOW)


def test_queue_and_order_tokens_have_one_spelling_too() -> None:
    queue, keys = QueueTokens(development_keys("queue-token")), development_keys("order-token")
    place = QueueToken("arena", 1, 0, 7, "fan", NOW)
    for token, read in (
        (queue.sign(place), queue.read),
        (sign_order_token(keys, "ABCDEFGHJKMN"), partial(read_order_token, keys)),
    ):
        read(token)
        for other in (f"{token}=", token[:-1] + chr(ord(token[-1]) + 1)):
            assert unb64(other.rpartition(".")[2]) == unb64(token.rpartition(".")[2])
            with pytest.raises(BadCredential):
                read(other)


def test_a_cached_pass_of_a_removed_key_is_refused() -> None:
    keys = Keyring(dict(KEYS.public().keys))
    reading, token = PassReader(keys), sign_pass(KEYS, PASS)
    assert reading.read(token, now_s=NOW) == PASS
    keys.replace(Keyring({"new": bytes(range(32))}).public())
    with pytest.raises(BadCredential):
        reading.read(token, now_s=NOW)
