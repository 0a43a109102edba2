"""The rules of forward-auth, without a proxy: exempt paths, the time limit of failing open."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from services.gateway.forward_auth import decision
from services.gateway.forward_auth.decision import FailOpenWindow, ForwardAuth
from services.gateway.forward_auth.request import OriginalRequest, is_exempt
from shared.contracts.room_options import ForwardAuthRules

TRICKY = ("/assets/../admin", "/assets/..", "/assets//x", "/assets/./x", "/assets/.x", "/assets/%2e%2e/x", "/assets/;")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("uri", ["/assets/x.css", "/up", "/up?x=1", *TRICKY, "/other"])
def test_an_exempt_path_is_read_and_plainly_spelled(method: str, uri: str) -> None:
    rules = ForwardAuthRules(let_through=["/up", "/assets/*"])
    request = OriginalRequest("show", method, "https://shop.example", uri, Headers(), {})
    assert is_exempt(request, rules) == (method != "POST" and uri not in (*TRICKY, "/other"))


def test_an_outage_admits_everybody_for_its_time_limit_and_flapping_does_not_restart_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, healthy = [0.0], [False]
    monkeypatch.setattr(decision, "time", SimpleNamespace(monotonic=lambda: now_s[0], time=time.time))
    others: dict[str, Any] = dict.fromkeys(
        ("passes", "revoked_passes", "handover_codes", "token_reader", "place_client", "rate_limits")
    )
    lines: Any = SimpleNamespace(is_fresh=lambda line: healthy[0])
    forward_auth = ForwardAuth(line_cache=lines, fail_open_window=FailOpenWindow(), **others)
    rules = ForwardAuthRules(on_engine_error="admit", admit_on_error_s=60)

    def admits(at_s: float, *, is_healthy: bool = False) -> bool:
        now_s[0], healthy[0] = at_s, is_healthy
        line: Any = object()
        return forward_auth._fail_open("show", rules, line)

    assert [admits(at_s) for at_s in (0, 59, 60, 900)] == [True, True, False, False]
    assert not any(admits(at_s, is_healthy=True) for at_s in (901, 930))
    assert not admits(931), "a flapping line does not begin anew"
    assert not any(admits(at_s, is_healthy=True) for at_s in (940, 1001))
    assert admits(1002), "after a healthy minute an outage is a new one"
    assert not forward_auth._fail_open("invented", rules, None)
