"""JWTs of signed-in users: verified by a shared secret or by the provider's keys, which are fetched, follow rotations,
and are kept while the provider fails.
"""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import OKPAlgorithm
from pydantic import ValidationError

from features.sign_in import provider_keys
from features.sign_in.users import JoinedSettings, SharedSecret, UserJwtReader, holder_of, user_jwt_reader
from shared.errors.problems import BadCredential, Unavailable
from tests.support.providers.identity_provider import (
    AUDIENCE,
    ISSUER,
    SECRET,
    Provider,
    identity_provider,
    jwt_by_key,
    jwt_by_secret,
    jwt_claims,
    private_key,
    public_jwk,
)
from tests.support.wait import wait_until

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


FAULTS = ["slow", "dripping", "failing", "garbled", "empty", "huge", "moved"]


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_keys, "REFETCH_S", 0.05)


def by_provider(provider: Provider) -> JoinedSettings:
    return JoinedSettings(user_jwt_jwks_url=provider.url, user_jwt_issuer=ISSUER, user_jwt_audience=AUDIENCE)


async def outcome(users: UserJwtReader, text: str) -> str | type[Exception]:
    """The user of this token, or why it is refused."""
    try:
        return (await users.read(text)).user_id
    except (BadCredential, Unavailable) as refused:
        return type(refused)


async def wait_until_accepted(users: UserJwtReader, text: str) -> None:
    async def accepted() -> bool:
        return isinstance(await outcome(users, text), str)

    await wait_until(accepted)


async def test_a_rotated_key_is_fetched_once_and_a_withdrawn_key_is_refused() -> None:
    async with identity_provider() as provider, user_jwt_reader(by_provider(provider)) as users:
        old, new = jwt_by_key("ada", kid="k1"), jwt_by_key("ada", kid="k2")
        assert {await outcome(users, old) for _ in range(20)} == {"ada"}
        assert provider.requests == 1
        provider.published_keys = [public_jwk("EdDSA", "k2"), *provider.published_keys]
        await wait_until_accepted(users, new)
        assert set(await asyncio.gather(*(outcome(users, text) for text in (old, new) * 10))) == {"ada"}
        assert provider.requests == 2
        provider.published_keys = provider.published_keys[:1]

        async def fetched_again() -> bool:
            assert await outcome(users, jwt_by_key(kid="k3")) is BadCredential
            return provider.requests >= 3

        await wait_until(fetched_again)
        assert (await outcome(users, old), await outcome(users, new)) == (BadCredential, "ada")


async def test_tokens_of_unknown_keys_do_not_cause_repeated_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_keys, "REFETCH_S", 60)
    async with identity_provider() as provider, user_jwt_reader(by_provider(provider)) as users:
        forged = [outcome(users, jwt_by_key(kid=f"unknown-{n}")) for n in range(50)]
        assert set(await asyncio.gather(*forged)) == {BadCredential}
        assert {await outcome(users, jwt_by_key(kid=f"unknown-too-{n}")) for n in range(20)} == {BadCredential}
        assert await users.read(jwt_by_key())
        assert provider.requests == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_last_good_keys_are_kept_while_the_provider_fails(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with identity_provider() as provider, user_jwt_reader(by_provider(provider)) as users:
        assert await users.read(jwt_by_key("ada"))
        monkeypatch.setattr(provider_keys, "DEADLINE_S", 0.2)
        provider.fault, of_unknown_key = fault, jwt_by_key(kid="k2")

        async def is_unavailable() -> bool:
            """A token of an unknown key cannot be judged while the provider fails: 503, not 401."""
            now = await outcome(users, of_unknown_key)
            assert now in (BadCredential, Unavailable)
            return now is Unavailable

        await wait_until(is_unavailable)
        assert provider.requests >= 2
        assert await outcome(users, jwt_by_key("bob")) == "bob"
        provider.fault, provider.published_keys = "good", [public_jwk("EdDSA", "k2")]
        await wait_until_accepted(users, of_unknown_key)


@pytest.mark.parametrize("fault", FAULTS)
async def test_nobody_waits_long_for_a_provider_that_fails_from_the_start(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "DEADLINE_S", 0.2)
    async with identity_provider() as provider, user_jwt_reader(by_provider(provider)) as users:
        provider.fault = fault
        async with asyncio.timeout(2):
            assert set(await asyncio.gather(*(outcome(users, jwt_by_key()) for _ in range(20)))) == {Unavailable}
        assert provider.requests == 1


async def test_old_keys_are_fetched_again_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_keys, "REFRESH_S", 0.05)
    async with identity_provider() as provider, user_jwt_reader(by_provider(provider)) as users:
        text = jwt_by_key()
        assert await users.read(text)
        provider.fault = "slow"

        async def fetched_again() -> bool:
            async with asyncio.timeout(provider_keys.DEADLINE_S / 2):
                assert await users.read(text)
            return provider.requests >= 2

        await wait_until(fetched_again)


async def test_a_private_key_or_a_secret_in_a_jwk_set_is_refused() -> None:
    private = {**OKPAlgorithm.to_jwk(private_key("EdDSA", "k1"), as_dict=True), "kid": "k1"}
    invalid: list[Any] = [[private], [{"kty": "oct", "k": "AAAA", "kid": "k1"}], [7, None, {}], "keys", None]
    for members in invalid:
        with pytest.raises(ValueError, match="JWK set"):
            provider_keys.parse(orjson.dumps({"keys": members}))
