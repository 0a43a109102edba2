"""Credentials: a Bearer header comes before a cookie, and a cookie allows writes from our own pages only."""

import pytest
from starlette.requests import HTTPConnection, Request

from shared.security.auth import AdminKeys
from shared.security.credentials import credential, require_credential
from shared.web.problems import BadCredential, ForeignOrigin, NoCredential

KEY = "k" * 24


def request(method: str = "GET", **headers: str) -> HTTPConnection:
    raw = [(name.encode(), value.encode()) for name, value in {"host": "tickets.test", **headers}.items()]
    return Request({"type": "http", "method": method, "headers": raw})


def test_an_authorization_header_comes_before_the_cookie() -> None:
    assert credential(request(authorization="Bearer t1", cookie="c=t2"), "c") == "t1"
    with pytest.raises(BadCredential):
        credential(request(authorization="Basic dDE6", cookie="c=t2"), "c")


def test_a_cookie_reads_from_anywhere_and_writes_from_our_own_pages_only() -> None:
    assert credential(request(cookie="c=t2"), "c") == "t2"
    assert credential(request("POST", cookie="c=t2", origin="https://tickets.test"), "c") == "t2"
    for origin in ({"origin": "https://evil.test"}, {"origin": "null"}, {}):
        with pytest.raises(ForeignOrigin):
            credential(request("POST", cookie="c=t2", **origin), "c")


def test_a_request_without_a_credential_is_refused() -> None:
    with pytest.raises(NoCredential):
        require_credential(request(), "c")


def test_an_admin_key_names_an_operator_and_a_role() -> None:
    keys = AdminKeys(f"ops:operator:{KEY},boss:admin:{KEY}2")
    assert keys.operator(KEY) == ("ops", "operator")
    assert keys.operator(f"{KEY}2") == ("boss", "admin")
    with pytest.raises(BadCredential):
        keys.operator("k" * 23)
    assert KEY not in repr(keys)


@pytest.mark.parametrize("text", ["ops", "ops:root:" + KEY, "ops:admin:short", "o ps:admin:" + KEY])
def test_an_invalid_admin_key_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="admin key"):
        AdminKeys(text)
