"""`onsale plan` beside the night that was measured: what it counts for that night's parameters, service by service."""

import pytest

from bench.scale import plan_and_night
from bench.scale.coefficients import GUIDE
from bench.scale.simulation import measured_night
from onsale.capacity.coefficients import coefficients

RECORD, KNOWN, FACTOR = measured_night(), coefficients(), 1.5
PROCESSOR_S, OPERATIONS = plan_and_night.processor_s(RECORD, KNOWN), plan_and_night.operations(RECORD, KNOWN)


@pytest.mark.parametrize("part", PROCESSOR_S)
def test_the_plan_of_the_night_gives_the_processor_time_that_was_measured(part: str) -> None:
    planned, measured = PROCESSOR_S[part]
    assert 1 / FACTOR < planned / measured < FACTOR


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_plan_of_the_night_has_the_operations_that_were_counted(operation: str) -> None:
    """A plan takes it that fans hold half again as often as they buy; the night's fans bought what they held first."""
    planned, measured = OPERATIONS[operation]
    most = KNOWN["holds_per_admission"] if operation == "hold" else FACTOR
    assert 1 / FACTOR < planned / measured <= most


def test_no_cost_of_the_plan_is_taken_from_the_night_that_it_is_compared_with() -> None:
    assert "night" not in KNOWN.measurements


def test_the_guide_shows_the_plan_beside_the_latest_night() -> None:
    assert GUIDE.read_text() == plan_and_night.BLOCK.replaced(GUIDE.read_text(), plan_and_night.table(RECORD, KNOWN))
