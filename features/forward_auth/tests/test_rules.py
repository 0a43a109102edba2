"""The rules of forward-auth, without a proxy: exempt paths, the time limit of failing open, the guide's examples."""

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from starlette.datastructures import Headers

from features.forward_auth.gateway import decision
from features.forward_auth.gateway.decision import ForwardAuth
from features.forward_auth.gateway.request import OriginalRequest, is_exempt
from features.forward_auth.rules import ForwardAuthRules, RoomGate
from services.gateway.settings import Settings
from shared.contracts.event_file import RoomPart
from shared.contracts.file_parts import part_of
from tests.support.providers.shop import GUIDE

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
    others = dict.fromkeys(("redis", "queue", "token_reader", "place_client", "passes_by"))
    lines = SimpleNamespace(is_fresh=lambda line: healthy[0])
    state: Any = SimpleNamespace(settings=Settings(), line_cache=lines, **others)
    forward_auth = ForwardAuth(state)
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


def test_every_example_of_the_guide_is_valid() -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", GUIDE.read_text(), re.S)
    languages = [language for language, _ in blocks]
    assert {"yaml", "nginx", "caddyfile", "python"} == set(languages)
    room, traefik, envoy = (yaml.safe_load(text) for language, text in blocks if language == "yaml")
    assert part_of(RoomPart.model_validate(room["room"]), RoomGate).gate.let_through == [
        "/healthz",
        "/assets/*",
        "/*.css",
    ]
    assert "/gate/traefik/check?event=" in traefik["http"]["middlewares"]["onsale"]["forwardAuth"]["address"]
    service = envoy["http_filters"][1]["typed_config"]["http_service"]
    assert service["path_prefix"] == "/gate/envoy/check"
    assert service["authorization_request"]["headers_to_add"][0]["key"] == "x-onsale-event"
    for language, text in blocks:
        if language == "python":
            compile(text, str(GUIDE), "exec")


@pytest.mark.parametrize(
    "wrong",
    [
        {"let_through": ["(a+)+$"]}, {"let_through": ["assets/*"]}, {"let_through": ["/a*b*c*d*e"]},
        {"let_through": ["/" + "a" * 200]}, {"let_through": ["/a"] * 51}, {"return_to": ["https://shop.example/path"]},
        {"return_to": ["*"]}, {"return_to": ["https://*.example"]}, {"return_to": ["javascript://x"]},
        {"return_to": ["https://shop.example@evil.example"]}, {"waiting_room": "tickets.example"},
        {"on_engine_error": "maybe"}, {"admit_on_error_s": 0}, {"admit_on_error_s": 86_400}, {"unknown": 1},
    ],
)  # fmt: skip
def test_invalid_forward_auth_rules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ForwardAuthRules.model_validate(wrong)
