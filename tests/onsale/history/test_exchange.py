"""What credentials say of a fan, read without verification: a history must never stumble over a strange one."""

import pytest

from onsale.history.exchange import claims, document, fan_of
from shared.security.tokens import Keyring, Pass, sign_pass
from tests.support.providers.identity_provider import jwt_by_secret

KEYS = Keyring({"k1": b"x" * 32})
PASS = sign_pass(KEYS, Pass("arena", "fan-1", "jti-1", 3, 0, 17, 6, 1_700_000_000, 1_700_000_600))


def test_a_pass_names_its_holder() -> None:
    assert fan_of(PASS) == {"fan": "fan-1"}


def test_a_users_token_names_the_user() -> None:
    assert fan_of(jwt_by_secret("alice")) == {"user": "alice"}


@pytest.mark.parametrize("strange", ["", "a.b", "a.b.c", "ORD-1.k1.mac", "a.W10.c", "a.eyJzdWIiOjF9.c", "\udcff.é.ü"])
def test_any_other_text_names_nobody(strange: str) -> None:
    assert fan_of(strange) == {}
    assert isinstance(claims(strange), dict)


def test_a_body_that_is_no_document_says_nothing() -> None:
    assert document(b"<html>") == {}
    assert document(b"\xff") == {}
