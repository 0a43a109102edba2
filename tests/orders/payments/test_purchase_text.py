"""The words of a charge: whatever an event is called, banks print them and the fan knows what it was."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orders.steps.purchase import DESCRIPTION_MAX_CHARS, description, statement
from services.orders.tickets.show import ShowInfo
from tests.properties.examples import bounded

STATEMENT_MAX_CHARS = 22
AT = datetime(2027, 8, 31, 20, tzinfo=UTC)


@bounded(examples=30, steps=1)
@given(
    name=st.text(min_size=1, max_size=300),
    event_id=st.from_regex(r"[a-z0-9-]{1,60}", fullmatch=True),
    dated=st.booleans(),
)
def test_banks_print_the_words_of_every_event(name: str, event_id: str, dated: bool) -> None:
    show = ShowInfo(event_id, name, starts_at=AT if dated else None)
    suffix, text = statement(show, "7Q2M4XK9TB1C"), description(show, "7Q2M4XK9TB1C")
    assert len(suffix) <= STATEMENT_MAX_CHARS
    assert any(map(str.isalpha, suffix))
    assert not set(suffix) & set("<>\\'\"*")
    assert all(" " <= sign < "\u0250" and sign != "\x7f" for sign in suffix)
    assert "7Q2M4XK9TB1C" in text
    assert 0 < len(text) <= DESCRIPTION_MAX_CHARS
    assert suffix == suffix.strip()
    assert suffix.endswith("31 Aug") or not dated


@pytest.mark.parametrize(("name", "event_id", "said"), [
    ("Ænima", "tour-1", "AEnima"), ("A 演唱会", "tour-1", "tour-1"), ("2027", "2027", "Order 7Q2M4XK9TB1C"),
    ("The longest name of all the nights", "x", "The longest name of al"),
])  # fmt: skip
def test_a_statement_falls_back_to_the_event_id_and_the_reference(name: str, event_id: str, said: str) -> None:
    assert statement(ShowInfo(event_id, name), "7Q2M4XK9TB1C") == said
