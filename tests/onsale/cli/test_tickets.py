"""`onsale tickets verify`: a scanner's work by hand, from files alone."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from onsale.cli import app as cli
from onsale.cli import context
from shared.runtime.settings import development_keys
from shared.security.tickets import TicketCode, rotating_code, sign_ticket
from shared.security.tokens import b64, jwks

KEYS = development_keys("ticket")
TICKET = TicketCode("arena-2026", "ABCDEFGH1234", "A", "A-1-12", "QRSTVW")
SECRET = b"s" * 32


@pytest.fixture
def verify(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Verifies with the published keys; the exit code and what was said."""
    (tmp_path / "keys.json").write_bytes(orjson.dumps(jwks(KEYS.public())))

    def run(code: str, *words: str, keys: str = str(tmp_path / "keys.json")) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["onsale", "tickets", "verify", code, "--keys", keys, *words])
        for console in (context.out, context.err):
            console.width = 200
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return run


def listed(path: Path, **changes: str | None) -> str:
    told = {"ticket_id": TICKET.ticket_id, "status": "valid", "void_at": None, "void_reason": None, **changes}
    path.write_bytes(orjson.dumps({"event_id": TICKET.event_id, "tickets": [told]}))
    return str(path)


def test_a_good_ticket_is_good_and_any_other_is_not(verify):
    code = sign_ticket(KEYS, TICKET)
    said = verify(code)
    assert said[0] == 0, said
    for word in ("good", "arena-2026", "A-1-12", "QRSTVW"):
        assert word in said[1]
    assert verify(code[:-9] + "AAAAAAAAA") == (1, "refused: its signature is wrong\n")


def test_a_ticket_that_was_given_back_is_refused_by_the_list(verify, tmp_path):
    code = sign_ticket(KEYS, TICKET)
    assert verify(code, "--tickets", listed(tmp_path / "list"))[0] == 0
    void = listed(tmp_path / "list", status="void", void_at="2026-05-01T10:00:00Z", void_reason="show moved")
    assert verify(code, "--tickets", void) == (1, "refused: it is void since 2026-05-01 10:00Z (show moved)\n")


def test_a_moving_code_needs_the_list_and_the_time(verify, tmp_path):
    signed = sign_ticket(KEYS, TICKET._replace(window_s=30))
    now = f"{signed}.{rotating_code(SECRET, 30, at_s=time.time())}"
    secret = listed(tmp_path / "list", secret=b64(SECRET))
    assert verify(now, "--tickets", secret)[0] == 0
    assert "give the ticket list" in verify(now)[1]
    assert "not in the list" in verify(now, "--tickets", _empty(tmp_path / "empty"))[1]
    for late in (signed, f"{signed}.{rotating_code(SECRET, 30, at_s=time.time() - 90)}"):
        assert verify(late, "--tickets", secret)[0] == 1


def test_keys_or_lists_that_cannot_be_used_are_one_clear_line(verify, tmp_path):
    (tmp_path / "broken").write_text("{}")
    code = sign_ticket(KEYS, TICKET)
    for keys in (str(tmp_path / "nowhere"), str(tmp_path / "broken"), "http://127.0.0.1:9/"):
        assert verify(code, keys=keys)[0] == 2
    assert verify(code, "--tickets", str(tmp_path / "broken"))[0] == 2


def _empty(path: Path) -> str:
    path.write_bytes(orjson.dumps({"event_id": TICKET.event_id, "tickets": []}))
    return str(path)
