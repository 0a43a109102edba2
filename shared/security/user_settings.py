"""Settings of signed-in fans: the identity provider that is trusted and its keys. Without them nobody can sign in.

A secret means HS256 only, a JWKS URL public keys only. Setting both stops the start, so that no token can ever choose
between them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, StringConstraints, model_validator
from pydantic_settings import BaseSettings, NoDecode

from shared.security.tokens import Keyring, development_keys

Algorithm = Literal["HS256", "RS256", "ES256", "EdDSA"]
SECRET_BYTES_MIN = 32
PUBLIC_KEY_ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")


def listed(value: Any) -> Any:
    """The parts of a list as the environment gives it, separated by commas; in brackets, as earlier versions wanted
    numbers, or without.
    """
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.strip("[] ").split(",") if part.strip())


def _or_nothing(value: Any) -> Any:
    return None if value == "" else value


Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$", max_length=2000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Listed = Annotated[tuple[Algorithm, ...], NoDecode, BeforeValidator(listed)]
Maybe = BeforeValidator(_or_nothing)


def _keyring(value: Any) -> Any:
    return Keyring.parse(value) if isinstance(value, str) else value


Keys = Annotated[Keyring, NoDecode, BeforeValidator(_keyring)]


class UserSettings(BaseSettings):
    """Part of every service's settings."""

    holder_keys: Keys = Field(
        default_factory=lambda: development_keys("holder"),
        description="Derive fans' ids from their sign-in or Idempotency-Key. Never rotated: a fan keeps the id.",
    )
    user_jwt_secret: Annotated[SecretStr | None, Maybe] = Field(
        None, description="Secret the seller signs users' JWTs with (HS256), at least 32 bytes."
    )
    user_jwt_jwks_url: Annotated[Address | None, Maybe] = Field(
        None, description="URL of the identity provider's public keys (JWKS)."
    )
    user_jwt_algorithms: Listed = Field(
        (), description="Accepted algorithms: HS256 with a secret; RS256, ES256, EdDSA with JWKS. Empty: all of these."
    )
    user_jwt_issuer: Annotated[Name | None, Maybe] = Field(None, description="Required `iss`; needed with JWKS.")
    user_jwt_audience: Annotated[Name | None, Maybe] = Field(
        None, description="Required value in `aud`; needed with JWKS."
    )
    user_jwt_refetch_s: float = Field(
        5.0, ge=0.01, le=3600, description="Least time between two fetches of keys because of an unknown key."
    )
    user_jwt_refresh_s: float = Field(
        300.0, ge=0.05, le=86_400, description="Age after which keys are fetched again in the background."
    )

    @property
    def believed_algorithms(self) -> tuple[Algorithm, ...]:
        """The algorithms a user's JWT may have."""
        return self.user_jwt_algorithms or (("HS256",) if self.user_jwt_secret else PUBLIC_KEY_ALGORITHMS)

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        if self.user_jwt_secret is not None:
            if self.user_jwt_jwks_url is not None:
                raise ValueError("user_jwt_secret and user_jwt_jwks_url exclude each other")
            if len(self.user_jwt_secret.get_secret_value().encode()) < SECRET_BYTES_MIN:
                raise ValueError(f"user_jwt_secret must have at least {SECRET_BYTES_MIN} bytes")
        mismatched = {a for a in self.user_jwt_algorithms if (a == "HS256") != (self.user_jwt_secret is not None)}
        if mismatched:
            raise ValueError("user_jwt_algorithms: HS256 goes with user_jwt_secret, all others with user_jwt_jwks_url")
        if self.user_jwt_jwks_url is not None and not (self.user_jwt_issuer and self.user_jwt_audience):
            raise ValueError("user_jwt_jwks_url needs user_jwt_issuer and user_jwt_audience: a provider signs for many")
        return self
