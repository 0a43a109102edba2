"""Order tokens open one order for good; the checkout key makes a repeated order request idempotent."""

import hmac

from shared.security.tokens import TOKEN_MAX_CHARS, Keyring, b64, canonical_unb64
from shared.web.problems import BadCredential


def sign_order_token(keys: Keyring, reference: str) -> str:
    """`reference.kid.mac`: opens the order for good."""
    return f"{reference}.{keys.kid}.{b64(keys.mac('order', reference))}"


def read_order_token(keys: Keyring, text: str) -> str:
    """The reference the token opens; raises `BadCredential`."""
    try:
        reference, kid, mac = text[:TOKEN_MAX_CHARS].split(".")
        if hmac.compare_digest(canonical_unb64(mac), keys.mac("order", reference, kid=kid)):
            return reference
    except (ValueError, KeyError) as broken:
        raise BadCredential from broken
    raise BadCredential


def checkout_key(keys: Keyring, jti: str) -> str:
    """The key from which a fan's page builds its `Idempotency-Key`: stable for one pass, unguessable for others."""
    return b64(keys.mac("checkout", jti))[:32]
