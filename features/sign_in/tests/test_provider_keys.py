"""The JWKS client: it fetches a provider's keys, follows rotations, and keeps the keys while the provider fails."""

import asyncio
from typing import Any

import orjson
import pytest
from jwt.algorithms import OKPAlgorithm

from features.sign_in import provider_keys
from features.sign_in.users import JoinedSettings, UserJwtReader, user_jwt_reader
from shared.errors.problems import BadCredential, Unavailable
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
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_keys, "REFETCH_S", 0.05)


def settings(provider: Provider) -> JoinedSettings:
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
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
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
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        forged = [outcome(users, jwt_by_key(kid=f"unknown-{n}")) for n in range(50)]
        assert set(await asyncio.gather(*forged)) == {BadCredential}
        assert {await outcome(users, jwt_by_key(kid=f"unknown-too-{n}")) for n in range(20)} == {BadCredential}
        assert await users.read(jwt_by_key())
        assert provider.requests == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_last_good_keys_are_kept_while_the_provider_fails(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
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
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
        provider.fault = fault
        async with asyncio.timeout(2):
            assert set(await asyncio.gather(*(outcome(users, jwt_by_key()) for _ in range(20)))) == {Unavailable}
        assert provider.requests == 1


async def test_old_keys_are_fetched_again_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_keys, "REFRESH_S", 0.05)
    async with identity_provider() as provider, user_jwt_reader(settings(provider)) as users:
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
