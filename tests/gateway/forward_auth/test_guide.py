"""The examples of the forward-auth guide are valid, and rules that it does not allow are refused."""

import re

import pytest
import yaml
from pydantic import ValidationError

from shared.contracts.event_file import RoomPart
from shared.contracts.room_options import ForwardAuthRules
from tests.support.providers.shop import GUIDE


def test_every_example_of_the_guide_is_valid():
    blocks = re.findall(r"```(\w+)\n(.*?)```", GUIDE.read_text(), re.S)
    languages = [language for language, _ in blocks]
    assert {"yaml", "nginx", "caddyfile", "python"} == set(languages)
    room, traefik, envoy = (yaml.safe_load(text) for language, text in blocks if language == "yaml")
    assert RoomPart.model_validate(room["room"]).gate.let_through == ["/healthz", "/assets/*", "/*.css"]
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
def test_invalid_forward_auth_rules_are_refused(wrong):
    with pytest.raises(ValidationError):
        ForwardAuthRules.model_validate(wrong)
