"""The public keys with which others verify passes and tickets, as JWK sets."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from shared.security.key_rotation import JWKS_MAX_AGE_S
from shared.security.tokens import Keyring, jwks

router = APIRouter(tags=["gate"])


class PublicKey(BaseModel):
    """An Ed25519 public key as a JWK (RFC 8037)."""

    kty: str
    crv: str
    x: str
    kid: str
    use: str
    alg: str


class PublicKeys(BaseModel):
    """A JWK set."""

    keys: list[PublicKey]


@router.get("/.well-known/jwks.json", summary="List public keys of passes")
async def pass_keys(request: Request, response: Response) -> PublicKeys:
    """The JWK set that verifies passes; during a rotation it holds the old key and the new one."""
    return _jwks(response, request.app.state.deps.settings.pass_public_keys)


@router.get("/.well-known/ticket-keys.json", summary="List public keys of tickets")
async def ticket_keys(request: Request, response: Response) -> PublicKeys:
    """The JWK set that verifies tickets. Scanners load it before the doors open and then work offline."""
    return _jwks(response, request.app.state.deps.settings.ticket_public_keys)


def _jwks(response: Response, keys: Keyring) -> PublicKeys:
    response.headers["cache-control"] = f"public, max-age={JWKS_MAX_AGE_S}"
    return PublicKeys.model_validate(jwks(keys))
