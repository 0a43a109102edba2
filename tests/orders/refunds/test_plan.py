"""What a refund may take, from the order alone."""

from dataclasses import replace
from typing import Any

import pytest

from services.orders.model.order import OrderLine
from services.orders.model.rules import RefundSelection, plan
from services.orders.problems import RefundRefused
from tests.orders.processing.test_states import CHARGE, ORDER

LINES = (
    OrderLine(section_id="A", seat_id="A-1-1", quantity=1, unit_price_minor=40, paid_minor=40),
    OrderLine(section_id="GA", seat_id=None, quantity=2, unit_price_minor=30, paid_minor=60, line_no=2, returned=1),
)
SOLD = replace(ORDER, status="confirmed", charge_ref="c1", charges=(replace(CHARGE, refunded_minor=30),), lines=LINES)


@pytest.mark.parametrize(
    ("selection", "amount_minor"),
    [
        ({"amount_minor": 70}, 70),
        ({"amount_minor": 71}, None),
        ({"amount_minor": 0}, None),
        ({"amount_minor": -1}, None),
        ({"seats": ("A-1-1",)}, 40),
        ({"seats": ("A-1-1", "A-1-1")}, 80),
        ({"seats": ("A-1-2",)}, None),
        ({"ga": (("GA", 1),)}, 30),
        ({"ga": (("GA", 2),)}, None),
        ({}, 70),
    ],
)
def test_a_refund_is_never_more_than_what_is_left(selection: dict[str, Any], amount_minor: int | None) -> None:
    if amount_minor is None:
        with pytest.raises(RefundRefused):
            plan(SOLD, RefundSelection(**selection))
    else:
        assert plan(SOLD, RefundSelection(**selection))[0] == min(70, amount_minor)


def test_what_was_refunded_whole_is_refunded_no_more() -> None:
    refunded = replace(SOLD, charges=(replace(CHARGE, refunded_minor=100),), lines=())
    with pytest.raises(RefundRefused):
        plan(refunded, RefundSelection())
