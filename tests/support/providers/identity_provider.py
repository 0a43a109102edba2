"""A seller's identity provider on loopback: signs users' JWTs, publishes its keys, and fails on demand."""

import asyncio
import json
import time
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.providers.faulty_server import FaultyServer

ISSUER, AUDIENCE = "https://id.example.org", "tickets"
SECRET = "a secret of the seller's, longer than thirty-two bytes"
KINDS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@cache
def private_key(algorithm: str, kid: str) -> Any:
    """Created once for all tests, because RSA keys are slow to make."""
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else ed25519.Ed25519PrivateKey.generate()


def jwt_claims(user_id: str = "ada", **changes: Any) -> dict[str, Any]:
    """The claims of a valid token; a change to `None` removes a claim."""
    now_s = int(time.time())
    claims = {"sub": user_id, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 600, **changes}
    return {name: value for name, value in claims.items() if value is not None}


def jwt_by_secret(user_id: str = "ada", *, secret: str = SECRET, **changes: Any) -> str:
    """A user's JWT, signed with the seller's secret."""
    return jwt.encode(jwt_claims(user_id, **changes), secret, algorithm="HS256")


def jwt_by_key(user_id: str = "ada", *, algorithm: str = "EdDSA", kid: str | None = "k1", **changes: Any) -> str:
    """A user's JWT, signed with one of the provider's keys."""
    headers = {"kid": kid} if kid else None
    return jwt.encode(jwt_claims(user_id, **changes), private_key(algorithm, kid or "k1"), algorithm, headers=headers)


def public_jwk(algorithm: str, kid: str, **members: Any) -> dict[str, Any]:
    """The public key as the provider publishes it."""
    jwk = KINDS[algorithm].to_jwk(private_key(algorithm, kid).public_key(), as_dict=True)
    return {**jwk, "kid": kid, "use": "sig", **members}


def _key_set(keys: list[Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


class Provider(FaultyServer):
    """Answers with `published_keys`; `fault` is good, slow, dripping, failing, garbled, empty, huge or moved."""

    def __init__(self) -> None:
        super().__init__()
        self.published_keys = [public_jwk("EdDSA", "k1")]
        self.fault = "good"
        self.requests = 0

    async def respond(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        keys: list[Any] = self.published_keys
        match self.fault:
            case "good":
                await self.answer(writer, "200 OK", body=_key_set(keys))
            case "failing":
                await self.answer(writer, "500 Oh", body=_key_set(keys))
            case "moved":
                await self.answer(writer, "302 Found", f"location: {self.url}/elsewhere", body=_key_set(keys))
            case "empty":
                await self.answer(writer, "200 OK", body=_key_set([]))
            case "huge":  # valid, and larger than any client should read
                await self.answer(writer, "200 OK", body=_key_set([*keys, {"kty": "RSA", "x": "x" * 1_000_000}]))
            case "garbled":
                await self.answer(writer, "200 OK", body=b'{"keys": [{"kty": "RSA", "n": 7}, 3, null')
            case "slow":
                await self.silent(writer)
            case "dripping":
                await self.dripping(writer)


def identity_provider() -> AbstractAsyncContextManager[Provider]:
    """An identity provider that listens inside this context."""
    return Provider().listening("/keys")
