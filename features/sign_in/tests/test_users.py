"""JWTs of signed-in users: verified by a shared secret or by the provider's keys, with a fixed algorithm."""

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError

from features.sign_in.users import JoinedSettings, SharedSecret, UserJwtReader, holder_of, user_jwt_reader
from shared.errors.problems import BadCredential
from tests.support.providers.identity_provider import (
    AUDIENCE,
    ISSUER,
    SECRET,
    identity_provider,
    jwt_by_key,
    jwt_by_secret,
    jwt_claims,
    private_key,
    public_jwk,
)

KEYED: dict[str, Any] = {"user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
LONG_AGO_S, FAR_AHEAD_S = 1_000_000_000, 4_000_000_000


def settings(**fields: Any) -> JoinedSettings:
    return JoinedSettings(**({"user_jwt_secret": SECRET} | KEYED | fields))


def encoded(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.fixture
async def users() -> AsyncIterator[UserJwtReader]:
    """A reader of tokens that are signed with the shared secret."""
    async with user_jwt_reader(settings()) as reader:
        yield reader


async def test_a_token_signed_with_the_secret_names_its_user_and_the_same_holder_everywhere(users) -> None:
    user = await users.read(jwt_by_secret("ada", vip=True))
    assert (user.user_id, user.claims["vip"]) == ("ada", True)
    assert user.holder == holder_of(settings().holder_keys, "ada")
    assert "ada" not in user.holder
    assert len(user.holder) <= 64
    assert (await users.read(jwt_by_secret("bob"))).holder != user.holder


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": LONG_AGO_S}, {"exp": None}, {"exp": "never"}, {"exp": float("inf")}, {"exp": []},
        {"nbf": FAR_AHEAD_S}, {"iat": FAR_AHEAD_S}, {"iss": "https://other"}, {"iss": None}, {"aud": "other"},
        {"aud": None}, {"aud": ["other", "another"]}, {"sub": None}, {"sub": ""}, {"sub": "x" * 256},
        {"sub": "a\0b"}, {"sub": 7}, {"sub": "\ud800"}, {"secret": "another secret that also has enough bytes"},
    ],
    ids=repr,
)  # fmt: skip
async def test_a_token_with_a_missing_or_wrong_claim_is_refused(users, changes: dict[str, Any]) -> None:
    text = jwt_by_secret(**changes)
    with pytest.raises(BadCredential):
        await users.read(text)


async def test_one_matching_audience_suffices_and_small_clock_differences_are_allowed(users) -> None:
    assert await users.read(jwt_by_secret(aud=["other", AUDIENCE]))
    assert await users.read(jwt_by_secret(nbf=int(time.time()) + 2, exp=int(time.time()) - 2))


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a.b.c", "é.b.c", f"{encoded([])}.e30.x", f"{encoded('x')}.e30.x", f"{encoded({})}.e30.x",
        f"{encoded(b'[' * 5000)}.e30.x", f"{encoded({'alg': ['HS256']})}.e30.x", f"{encoded({'alg': 'HS256'})}.e30.x",
        f"{encoded({'alg': 'HS256', 'kid': {}})}.{encoded(b'[' * 5000)}.x", "x" * 9000,
    ],
)  # fmt: skip
async def test_a_malformed_token_is_refused(users, text: str) -> None:
    async with identity_provider() as provider, user_jwt_reader(by_keys(provider.url)) as users_by_key:
        for reader in (users, users_by_key):
            with pytest.raises(BadCredential):
                await reader.read(text)


def by_keys(url: str, **fields: Any) -> JoinedSettings:
    return settings(user_jwt_secret=None, user_jwt_jwks_url=url, **fields)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_signed_with_the_providers_key_names_its_user(algorithm: str) -> None:
    async with identity_provider() as provider:
        provider.published_keys = [public_jwk("EdDSA", "other"), public_jwk(algorithm, "k1")]
        async with user_jwt_reader(by_keys(provider.url)) as users:
            assert (await users.read(jwt_by_key("ada", algorithm=algorithm))).user_id == "ada"
            forged = jwt.encode(jwt_claims("ada"), private_key(algorithm, "stolen"), algorithm, headers={"kid": "k1"})
            with pytest.raises(BadCredential):
                await users.read(forged)


async def test_a_token_without_a_kid_is_accepted_if_the_provider_has_one_key_of_its_type() -> None:
    async with identity_provider() as provider:
        async with user_jwt_reader(by_keys(provider.url)) as users:
            assert await users.read(jwt_by_key(kid=None))
        provider.published_keys.append(public_jwk("EdDSA", "k2"))
        async with user_jwt_reader(by_keys(provider.url)) as users:
            with pytest.raises(BadCredential):
                await users.read(jwt_by_key(kid=None))


def unsigned(alg: str) -> str:
    return f"{encoded({'alg': alg, 'typ': 'JWT', 'kid': 'k1'})}.{encoded(jwt_claims())}."


def hmac_signed(raw: bytes) -> str:
    """An HS256 token whose secret is a public key; JWT libraries refuse to sign it."""
    signed = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'k1'})}.{encoded(jwt_claims())}"
    return f"{signed}.{encoded(hmac.digest(raw, signed.encode(), 'sha256'))}"


async def test_no_token_can_choose_its_algorithm(users) -> None:
    """`none` in all spellings, HMAC with the public key, and one type of key in place of another."""
    public = private_key("RS256", "k1").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    jwk = json.dumps(public_jwk("RS256", "k1")).encode()
    confused = [hmac_signed(raw) for raw in (pem, pem.strip(), der, jwk, b"")]
    without_signature = [unsigned(alg) for alg in ("none", "None", "NONE", "nOnE", "")]
    async with identity_provider() as provider:
        provider.published_keys = [
            public_jwk("RS256", "k1"),
            {"kty": "oct", "kid": "k1", "k": encoded(SECRET.encode())},
        ]
        async with user_jwt_reader(by_keys(provider.url)) as by_key:
            assert await by_key.read(jwt_by_key(algorithm="RS256"))
            for text in [*confused, *without_signature, jwt_by_secret(), jwt_by_key(algorithm="ES256")]:
                with pytest.raises(BadCredential):
                    await by_key.read(text)
    for text in [*without_signature, jwt_by_key(algorithm="RS256"), jwt_by_key(algorithm="EdDSA")]:
        with pytest.raises(BadCredential):
            await users.read(text)


async def test_a_provider_key_for_another_use_or_algorithm_is_refused() -> None:
    encrypting = public_jwk("RS256", "k1", use="enc")
    other_algorithm = public_jwk("RS256", "k1", alg="RS512")
    async with identity_provider() as provider:
        provider.published_keys = [encrypting, other_algorithm, public_jwk("EdDSA", "k2")]
        async with user_jwt_reader(by_keys(provider.url)) as users:
            with pytest.raises(BadCredential):
                await users.read(jwt_by_key(algorithm="RS256"))


async def test_every_token_is_refused_without_configuration() -> None:
    async with user_jwt_reader(JoinedSettings()) as users:
        for text in (jwt_by_secret(), jwt_by_key(), unsigned("none")):
            with pytest.raises(BadCredential):
                await users.read(text)


async def test_a_cached_token_is_verified_once_and_still_expires(users, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Mock(wraps=jwt.decode)
    monkeypatch.setattr(jwt, "decode", decode)
    text = jwt_by_secret()
    for _ in range(50):
        assert await users.read(text)
    assert decode.call_count == 1
    ((name, (expires_at_s, user_id, holder)),) = users._cache.items()
    users._cache[name] = expires_at_s - 610, user_id, holder  # as if ten minutes had passed
    with pytest.raises(BadCredential, match="expired"):
        await users.read(text)


async def test_the_cache_of_users_is_bounded() -> None:
    users = UserJwtReader(settings(), SharedSecret(SECRET), cache_entries_max=3)
    for number in range(10):
        await users.read(jwt_by_secret(f"user-{number}"))
    assert len(users._cache) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"user_jwt_jwks_url": "https://id.example.org/keys"}, "exclude each other"),
        ({"user_jwt_secret": "short"}, "at least 32 bytes"),
        ({"user_jwt_secret": None, "user_jwt_jwks_url": "file:///etc/keys"}, "user_jwt_jwks_url"),
        ({"user_jwt_secret": None, "user_jwt_jwks_url": "https://id/k", "user_jwt_audience": ""}, "needs user_jwt"),
    ],
)
def test_insecure_or_contradictory_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(**fields)


def test_the_repr_of_settings_hides_the_secret() -> None:
    assert SECRET not in repr(settings())
