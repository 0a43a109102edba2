"""`onsale tickets verify`: checks a ticket with published keys and a ticket list, without the suite."""

import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from shared.security.tickets import TicketCode, rotating_code, sign_ticket
from shared.security.tokens import b64, development_keys, jwks
from tests.support.running.program import Command

KEYS = development_keys("ticket")
TICKET = TicketCode("arena-2026", "ABCDEFGH1234", "A", "A-1-12", "QRSTVW")
SECRET = b"s" * 32


@pytest.fixture
def verify(onsale: Command, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs `onsale tickets verify` with the published keys; its exit code and output."""
    (tmp_path / "keys.json").write_bytes(orjson.dumps(jwks(KEYS.public())))

    def run(code: str, *arguments: str, keys: str = str(tmp_path / "keys.json")) -> tuple[int, str]:
        result = onsale("tickets", "verify", code, "--keys", keys, *arguments)
        return result.returncode, result.stdout + result.stderr

    return run


def ticket_list(path: Path, **changes: str | None) -> str:
    ticket = {"ticket_id": TICKET.ticket_id, "status": "valid", "void_at": None, "void_reason": None, **changes}
    path.write_bytes(orjson.dumps({"event_id": TICKET.event_id, "tickets": [ticket]}))
    return str(path)


def test_a_valid_ticket_passes_and_a_wrong_signature_is_refused(verify):
    code = sign_ticket(KEYS, TICKET)
    result = verify(code)
    assert result[0] == 0, result
    for text in ("good", "arena-2026", "A-1-12", "QRSTVW"):
        assert text in result[1]
    assert verify(code[:-9] + "AAAAAAAAA") == (1, "refused: its signature is wrong\n")


def test_a_ticket_that_the_list_calls_void_is_refused(verify, tmp_path):
    code = sign_ticket(KEYS, TICKET)
    assert verify(code, "--tickets", ticket_list(tmp_path / "list"))[0] == 0
    void_list = ticket_list(tmp_path / "list", status="void", void_at="2026-05-01T10:00:00Z", void_reason="show moved")
    assert verify(code, "--tickets", void_list) == (1, "refused: it is void since 2026-05-01 10:00Z (show moved)\n")


def test_a_ticket_of_a_price_type_says_its_type_and_what_is_shown(verify, tmp_path):
    code = sign_ticket(KEYS, TICKET._replace(type_id="child"))
    assert "A-1-12, child, order" in verify(code)[1]
    listed = ticket_list(tmp_path / "list", proof="A [red] card")
    assert verify(code, "--tickets", listed)[1].endswith("; to be shown: A [red] card\n")


def test_a_rotating_code_needs_the_ticket_list_and_the_current_time(verify, tmp_path):
    signed = sign_ticket(KEYS, TICKET._replace(window_s=30))
    now = f"{signed}.{rotating_code(SECRET, 30, at_s=time.time())}"
    list_with_secret = ticket_list(tmp_path / "list", secret=b64(SECRET))
    assert verify(now, "--tickets", list_with_secret)[0] == 0
    assert "give the ticket list" in verify(now)[1]
    assert "not in the list" in verify(now, "--tickets", empty_list(tmp_path / "empty"))[1]
    for late in (signed, f"{signed}.{rotating_code(SECRET, 30, at_s=time.time() - 90)}"):
        assert verify(late, "--tickets", list_with_secret)[0] == 1


def test_unusable_keys_or_lists_are_refused(verify, tmp_path):
    (tmp_path / "broken").write_text("{}")
    code = sign_ticket(KEYS, TICKET)
    for keys in (str(tmp_path / "nowhere"), str(tmp_path / "broken"), "http://127.0.0.1:9/"):
        assert verify(code, keys=keys)[0] == 2
    assert verify(code, "--tickets", str(tmp_path / "broken"))[0] == 2


def empty_list(path: Path) -> str:
    path.write_bytes(orjson.dumps({"event_id": TICKET.event_id, "tickets": []}))
    return str(path)
