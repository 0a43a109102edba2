"""Tokens that a process verified before are cached, and forgotten with the key that signed them."""

from typing import Any

import pytest

from services.gateway.protection.identity import TokenReader
from services.gateway.settings import Settings
from shared.errors.problems import BadCredential
from shared.security.tokens import Keyring
from tests.gateway.tokens import queue_token


def test_a_cached_token_of_a_removed_key_is_refused() -> None:
    users: Any = None
    settings, text = Settings(), queue_token()
    reader = TokenReader(settings, users)
    assert reader.read(text, "show").holder == "holder"
    settings.queue_token_keys.replace(Keyring({"new": bytes(range(32))}))
    with pytest.raises(BadCredential):
        reader.read(text, "show")
