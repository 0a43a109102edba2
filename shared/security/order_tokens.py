"""What opens an order for good, and the key that makes asking for one twice the same as asking once."""

import hmac

from shared.security.tokens import TOKEN_MAX_CHARS, Keyring, b64, exact
from shared.web.problems import BadCredential


def sign_order_token(keys: Keyring, reference: str) -> str:
    """`reference.kid.mac`: opens the order for good."""
    return f"{reference}.{keys.kid}.{b64(keys.mac('order', reference))}"


def read_order_token(keys: Keyring, text: str) -> str:
    """The reference the token opens; raises `BadCredential`."""
    try:
        reference, kid, mac = text[:TOKEN_MAX_CHARS].split(".")
        if hmac.compare_digest(exact(mac), keys.mac("order", reference, kid=kid)):
            return reference
    except (ValueError, KeyError) as broken:
        raise BadCredential from broken
    raise BadCredential


def checkout_key(keys: Keyring, jti: str) -> str:
    """The key a fan's page builds its `Idempotency-Key` from: stable for one admission, unguessable for others."""
    return b64(keys.mac("checkout", jti))[:32]
