"""Lengths of the state machine tests: few random histories in each `make test`, thousands in `make proof`."""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

EXAMPLES_VARIABLE = "ONSALE_EXAMPLES"


def bounded(*, examples: int, steps: int) -> settings:
    """Settings for new histories in each run, from the seed that the run prints. A failure is not shrunk: on real
    servers that takes longer than to read the history.
    """
    return settings(
        max_examples=int(os.environ.get(EXAMPLES_VARIABLE, examples)),
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def run_machine(
    machine: type[RuleBasedStateMachine], redis_url: str, postgres_url: str, *, settings: settings, **named: Any
) -> None:
    """Runs the machine on these servers, with more class attributes in `named`."""
    configured = type(
        f"Configured{machine.__name__}", (machine,), {"redis_url": redis_url, "postgres_url": postgres_url, **named}
    )
    run_state_machine_as_test(configured, settings=settings)
