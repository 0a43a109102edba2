"""The identity provider's keys are fetched, rotated and kept, however badly it behaves."""

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
    by_key,
    identity_provider,
    private_key,
    public_jwk,
)
from tests.support.wait import wait_until

WORST = ["slow", "dripping", "failing", "garbled", "empty", "huge", "moved"]


@pytest.fixture(autouse=True)
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_client, "DEADLINE_S", 0.2)


def settings(provider: Provider, **fields: Any) -> ServiceSettings:
    named = {"user_jwt_jwks_url": provider.url, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    return ServiceSettings(**{**named, "user_jwt_refetch_s": 0.05, **fields})


async def test_a_key_rotated_while_fans_wait_is_fetched_once_and_the_withdrawn_one_vouches_for_nobody() -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        old, new = by_key("ada", kid="k1"), by_key("ada", kid="k2")
        assert {(await users.read(old)).user_id for _ in range(20)} == {"ada"}
        assert provider.requests == 1
        provider.published_keys = [public_jwk("EdDSA", "k2"), *provider.published_keys]
        await wait_until(lambda: reads(users, new))
        read = await asyncio.gather(*(users.read(text) for text in (old, new) * 10))
        assert {user.user_id for user in read} == {"ada"}
        assert provider.requests == 2
        provider.published_keys = provider.published_keys[:1]
        await wait_until(lambda: refuses(users, by_key(kid="k3"), asked=provider, times=3))
        with pytest.raises(BadCredential):
            await users.read(old)
        assert await users.read(new)


async def reads(users: Any, text: str) -> bool:
    try:
        return bool(await users.read(text))
    except BadCredential:
        return False


async def refuses(users: Any, text: str, *, asked: Provider, times: int) -> bool:
    with pytest.raises(BadCredential):
        await users.read(text)
    return asked.requests >= times


async def test_tokens_of_unknown_keys_do_not_make_us_ask_again_and_again() -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider, user_jwt_refetch_s=60)) as users:
        forged = [users.read(by_key(kid=f"unknown-{n}")) for n in range(50)]
        outcomes = await asyncio.gather(*forged, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {BadCredential}
        for n in range(20):
            with pytest.raises(BadCredential):
                await users.read(by_key(kid=f"unknown-too-{n}"))
        assert await users.read(by_key())
        assert provider.requests == 1


@pytest.mark.parametrize("mood", WORST)
async def test_the_last_good_set_is_kept_while_the_provider_is_at_its_worst(mood: str) -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        assert await users.read(by_key("ada"))
        provider.fault = mood
        await wait_until(lambda: told_unavailable(users))
        assert provider.requests >= 2
        assert (await users.read(by_key("bob"))).user_id == "bob"
        provider.fault, provider.published_keys = "good", [public_jwk("EdDSA", "k2")]
        await wait_until(lambda: comes_back(users))


async def told_unavailable(users: Any) -> bool:
    """Somebody with a new key cannot be judged while its provider is away: that is no fault of theirs."""
    try:
        await users.read(by_key(kid="k2"))
    except BadCredential:
        return False
    except Unavailable:
        return True
    raise AssertionError("nobody has shown that key")


async def comes_back(users: Any) -> bool:
    try:
        return bool(await users.read(by_key(kid="k2")))
    except (BadCredential, Unavailable):
        return False


@pytest.mark.parametrize("mood", WORST)
async def test_a_provider_that_is_away_from_the_start_is_waited_for_by_nobody_for_long(mood: str) -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        provider.fault = mood
        async with asyncio.timeout(2):
            outcomes = await asyncio.gather(*(users.read(by_key()) for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        assert provider.requests == 1


async def test_old_keys_are_asked_for_again_while_nobody_waits() -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider, user_jwt_refresh_s=0.05)) as users:
        text = by_key()
        assert await users.read(text)
        provider.fault = "slow"

        async def asked_again() -> bool:
            async with asyncio.timeout(0.1):
                assert await users.read(text)
            return provider.requests >= 2

        await wait_until(asked_again)


async def test_a_private_key_or_a_secret_in_the_set_is_of_no_use() -> None:
    private = {**OKPAlgorithm.to_jwk(private_key("EdDSA", "k1"), as_dict=True), "kid": "k1"}
    useless: list[Any] = [[private], [{"kty": "oct", "k": "AAAA", "kid": "k1"}], [7, None, {}], "keys", None]
    for members in useless:
        with pytest.raises(ValueError, match="JWK set"):
            jwks_client.parse(orjson.dumps({"keys": members}), ("EdDSA",))
