"""Credentials: a Bearer header comes before a cookie, and a cookie allows writes from our own pages only."""

from contextlib import nullcontext

import pytest
from starlette.types import Scope

from shared.errors.problems import BadCredential, ForeignOrigin, NoCredential
from shared.rpc import SERVICE_HEADER, check_service_call, sign_service_call
from shared.security.auth import AdminKeys
from shared.security.tokens import credentials, development_keys, first_valid, set_cookie

KEY = "k" * 24


def request(method: str = "GET", **headers: str) -> Scope:
    raw = [(name.encode(), value.encode()) for name, value in {"host": "tickets.test", **headers}.items()]
    return {"type": "http", "method": method, "headers": raw}


def test_an_authorization_header_comes_before_the_cookie() -> None:
    assert credentials(request(authorization="Bearer t1", cookie="c=t2"), "c") == ["t1"]
    with pytest.raises(BadCredential):
        credentials(request(authorization="Basic dDE6", cookie="c=t2"), "c")


def test_a_cookie_reads_from_anywhere_and_writes_from_our_own_pages_only() -> None:
    assert credentials(request(cookie="c=t2"), "c") == ["t2"]
    assert credentials(request("POST", cookie="c=t2", origin="https://tickets.test"), "c") == ["t2"]
    for origin in ({"origin": "https://evil.test"}, {"origin": "null"}, {}):
        with pytest.raises(ForeignOrigin):
            credentials(request("POST", cookie="c=t2", **origin), "c")


@pytest.mark.parametrize(
    ("cookie", "said_by_the_balancer", "accepted"),
    [
        ("__Host-c", {}, {"https"}),
        ("__Host-c", {"x-forwarded-proto": "http"}, {"https"}),
        ("c", {"x-forwarded-proto": "https"}, {"https"}),
        ("c", {"x-forwarded-proto": "http"}, {"http"}),
        ("c", {}, {"http", "https"}),
    ],
)
def test_a_write_with_a_cookie_comes_from_a_page_of_the_same_scheme(
    cookie: str, said_by_the_balancer: dict[str, str], accepted: set[str]
) -> None:
    for scheme in ("http", "https", "ftp", ""):
        fields = {"cookie": f"{cookie}=t", "origin": f"{scheme}://tickets.test", **said_by_the_balancer}
        with nullcontext() if scheme in accepted else pytest.raises(ForeignOrigin):
            assert credentials(request("POST", **fields), cookie) == ["t"]


def test_a_request_without_a_credential_is_refused() -> None:
    with pytest.raises(NoCredential):
        credentials(request(), "c")


async def test_the_first_valid_cookie_counts_and_the_problem_is_that_of_the_last() -> None:
    async def read(text: str) -> str:
        if text.startswith("bad"):
            raise BadCredential(text)
        return text

    texts = credentials(request(cookie="a=bad1; b=; c=good"), "c", "a", "b")
    assert texts == ["good", "bad1"]
    assert await first_valid(["bad1", "good"], read) == "good"
    with pytest.raises(BadCredential, match="bad2"):
        await first_valid(["bad1", "bad2"], read)


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


def test_a_credential_is_in_a_cookie_that_no_script_reads() -> None:
    flags = set(set_cookie("c", "t", max_age_s=60, secure=True).split("; "))
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Path=/"} < flags
    assert "HttpOnly" not in set_cookie("c", "1", max_age_s=60, secure=False, readable=True)


def test_a_signed_call_is_good_for_half_a_minute_and_for_this_body_only() -> None:
    keys = development_keys("service")
    header = sign_service_call(keys, "POST", "/internal/x", b"{}", at_s=1_000)[SERVICE_HEADER]
    check_service_call(keys, header, "POST", "/internal/x", b"{}", now_s=1_030)
    check_service_call(keys, header, "POST", "/internal/x", b"{}", now_s=970)
    for method, path, body, now_s in (
        ("POST", "/internal/x", b"{}", 1_031), ("POST", "/internal/x", b"{}", 969),
        ("POST", "/internal/x", b"[]", 1_000), ("PUT", "/internal/x", b"{}", 1_000),
        ("POST", "/internal/y", b"{}", 1_000),
    ):  # fmt: skip
        with pytest.raises(BadCredential):
            check_service_call(keys, header, method, path, body, now_s=now_s)
