"""The models break no rule, and each of their guards is needed: without it a rule is broken soon."""

from typing import Any

import pytest

from proof.models.explorer import ProtocolModel, explore
from proof.models.line import LineProtocol
from proof.models.run import MODELS, without_guard

GUARDS = [(kind, guard) for kind in MODELS for guard in kind.guards]
STATES = 4_000


@pytest.mark.parametrize("kind", MODELS)
def test_no_rule_is_broken_and_everything_ends_well(kind: type[ProtocolModel[Any]]) -> None:
    found = explore(kind(), depth=100, states_max=STATES)
    assert found.counterexample is None, str(found.counterexample)
    assert len(found.came_from) >= STATES


@pytest.mark.parametrize(("kind", "guard"), GUARDS, ids=lambda value: getattr(value, "__name__", value))
def test_without_a_guard_a_rule_is_broken(kind: type[ProtocolModel[Any]], guard: str) -> None:
    found = without_guard(kind, guard)
    assert found.counterexample is not None
    model = kind(without=guard)
    assert model.broken(model.start) == ""


def test_an_exploration_is_the_same_each_time() -> None:
    one, other = (explore(LineProtocol(), depth=5) for _ in range(2))
    assert (list(one.came_from), one.transitions) == (list(other.came_from), other.transitions)


def test_a_counterexample_reads_as_the_steps_to_it() -> None:
    lines = str(without_guard(LineProtocol, "one live place a holder").counterexample).splitlines()
    assert lines[0] == "  1. p0 numbers a"
    assert lines[-1] == "  => a holder has two live places"
