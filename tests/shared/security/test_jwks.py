"""The JWKS client: it fetches a provider's keys, follows rotations, and keeps the keys while the provider fails."""

import asyncio
from typing import Any

import orjson
import pytest
from jwt.algorithms import OKPAlgorithm

from shared.runtime.settings import ServiceSettings
from shared.security import jwks_client
from shared.security.user_jwt import user_jwt_reader
from shared.web.problems import BadCredential, Unavailable
from tests.support.providers.identity_provider import (
    AUDIENCE,
    ISSUER,
    Provider,
    identity_provider,
    jwt_by_key,
    private_key,
    public_jwk,
)
from tests.support.wait import wait_until

FAULTS = ["slow", "dripping", "failing", "garbled", "empty", "huge", "moved"]


@pytest.fixture(autouse=True)
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_client, "DEADLINE_S", 0.2)


def settings(provider: Provider, **fields: Any) -> ServiceSettings:
    named = {"user_jwt_jwks_url": provider.url, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    return ServiceSettings(**{**named, "user_jwt_refetch_s": 0.05, **fields})


async def test_a_rotated_key_is_fetched_once_and_a_withdrawn_key_is_refused() -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        old, new = jwt_by_key("ada", kid="k1"), jwt_by_key("ada", kid="k2")
        assert {(await users.read(old)).user_id for _ in range(20)} == {"ada"}
        assert provider.requests == 1
        provider.published_keys = [public_jwk("EdDSA", "k2"), *provider.published_keys]
        await wait_until(lambda: accepts(users, new))
        results = await asyncio.gather(*(users.read(text) for text in (old, new) * 10))
        assert {user.user_id for user in results} == {"ada"}
        assert provider.requests == 2
        provider.published_keys = provider.published_keys[:1]
        await wait_until(lambda: refuses(users, jwt_by_key(kid="k3"), provider=provider, requests=3))
        with pytest.raises(BadCredential):
            await users.read(old)
        assert await users.read(new)


async def accepts(users: Any, text: str) -> bool:
    try:
        return bool(await users.read(text))
    except BadCredential:
        return False


async def refuses(users: Any, text: str, *, provider: Provider, requests: int) -> bool:
    with pytest.raises(BadCredential):
        await users.read(text)
    return provider.requests >= requests


async def test_tokens_of_unknown_keys_do_not_cause_repeated_requests() -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider, user_jwt_refetch_s=60)) as users:
        forged = [users.read(jwt_by_key(kid=f"unknown-{n}")) for n in range(50)]
        outcomes = await asyncio.gather(*forged, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {BadCredential}
        for n in range(20):
            with pytest.raises(BadCredential):
                await users.read(jwt_by_key(kid=f"unknown-too-{n}"))
        assert await users.read(jwt_by_key())
        assert provider.requests == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_last_good_keys_are_kept_while_the_provider_fails(fault: str) -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        assert await users.read(jwt_by_key("ada"))
        provider.fault = fault
        await wait_until(lambda: is_unavailable(users))
        assert provider.requests >= 2
        assert (await users.read(jwt_by_key("bob"))).user_id == "bob"
        provider.fault, provider.published_keys = "good", [public_jwk("EdDSA", "k2")]
        await wait_until(lambda: accepts_new_key(users))


async def is_unavailable(users: Any) -> bool:
    """A token of an unknown key cannot be judged while the provider fails: 503, not 401."""
    try:
        await users.read(jwt_by_key(kid="k2"))
    except BadCredential:
        return False
    except Unavailable:
        return True
    raise AssertionError("the key was never published")


async def accepts_new_key(users: Any) -> bool:
    try:
        return bool(await users.read(jwt_by_key(kid="k2")))
    except (BadCredential, Unavailable):
        return False


@pytest.mark.parametrize("fault", FAULTS)
async def test_nobody_waits_long_for_a_provider_that_fails_from_the_start(fault: str) -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        provider.fault = fault
        async with asyncio.timeout(2):
            outcomes = await asyncio.gather(*(users.read(jwt_by_key()) for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        assert provider.requests == 1


async def test_old_keys_are_fetched_again_in_the_background() -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider, user_jwt_refresh_s=0.05)) as users:
        text = jwt_by_key()
        assert await users.read(text)
        provider.fault = "slow"

        async def fetched_again() -> bool:
            async with asyncio.timeout(0.1):
                assert await users.read(text)
            return provider.requests >= 2

        await wait_until(fetched_again)


async def test_a_private_key_or_a_secret_in_a_jwk_set_is_refused() -> None:
    private = {**OKPAlgorithm.to_jwk(private_key("EdDSA", "k1"), as_dict=True), "kid": "k1"}
    invalid: list[Any] = [[private], [{"kty": "oct", "k": "AAAA", "kid": "k1"}], [7, None, {}], "keys", None]
    for members in invalid:
        with pytest.raises(ValueError, match="JWK set"):
            jwks_client.parse(orjson.dumps({"keys": members}), ("EdDSA",))
