"""A seller's identity provider on loopback: signs users' JWTs, publishes its keys, and fails on demand."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

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


class Provider:
    """Answers with `published_keys`; `fault` is good, slow, dripping, failing, garbled, empty, huge or moved."""

    def __init__(self) -> None:
        self.published_keys = [public_jwk("EdDSA", "k1")]
        self.fault = "good"
        self.requests = 0
        self.url = ""
        self._closing = asyncio.Event()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            await getattr(self, f"_{self.fault}")(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK") -> None:
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status.encode(), len(body)))
        writer.write(body)
        await writer.drain()

    async def _good(self, writer: asyncio.StreamWriter) -> None:
        await self._send(writer, json.dumps({"keys": self.published_keys}).encode())

    async def _slow(self, writer: asyncio.StreamWriter) -> None:
        await self._closing.wait()

    async def _dripping(self, writer: asyncio.StreamWriter) -> None:
        """Sends a byte now and then, so that no single read times out."""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not self._closing.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def _failing(self, writer: asyncio.StreamWriter) -> None:
        await self._send(writer, json.dumps({"keys": self.published_keys}).encode(), "500 Oh")

    async def _garbled(self, writer: asyncio.StreamWriter) -> None:
        await self._send(writer, b'{"keys": [{"kty": "RSA", "n": 7}, 3, null')

    async def _empty(self, writer: asyncio.StreamWriter) -> None:
        await self._send(writer, b'{"keys": []}')

    async def _moved(self, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"keys": self.published_keys}).encode()
        await self._send(writer, body, f"302 Found\r\nlocation: {self.url}/elsewhere")

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        """Valid, and larger than any client should read."""
        padding = {"kty": "RSA", "x": "x" * 1_000_000}
        await self._send(writer, json.dumps({"keys": [*self.published_keys, padding]}).encode())


@asynccontextmanager
async def identity_provider() -> AsyncIterator[Provider]:
    """An identity provider that listens inside this context."""
    provider = Provider()
    server = await asyncio.start_server(provider._answer, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    try:
        yield provider
    finally:
        provider._closing.set()
        server.close()
        await server.wait_closed()
