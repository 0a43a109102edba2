"""Settings of signed-in fans: the identity provider that is trusted and its keys. Without them nobody can sign in.

A secret means HS256 only, a JWKS URL public keys only. Setting both stops the start, so that no token can ever choose
between them.
"""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SecretStr, StringConstraints, model_validator
from pydantic_settings import BaseSettings, NoDecode

from shared.security.tokens import Keyring, development_keys

SECRET_BYTES_MIN = 32


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
    user_jwt_issuer: Annotated[Name | None, Maybe] = Field(None, description="Required `iss`; needed with JWKS.")
    user_jwt_audience: Annotated[Name | None, Maybe] = Field(
        None, description="Required value in `aud`; needed with JWKS."
    )

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        if self.user_jwt_secret is not None:
            if self.user_jwt_jwks_url is not None:
                raise ValueError("user_jwt_secret and user_jwt_jwks_url exclude each other")
            if len(self.user_jwt_secret.get_secret_value().encode()) < SECRET_BYTES_MIN:
                raise ValueError(f"user_jwt_secret must have at least {SECRET_BYTES_MIN} bytes")
        if self.user_jwt_jwks_url is not None and not (self.user_jwt_issuer and self.user_jwt_audience):
            raise ValueError("user_jwt_jwks_url needs user_jwt_issuer and user_jwt_audience: a provider signs for many")
        return self
