"""How long the state machines run: a few new histories in each `make test`, thousands in `make proof`."""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LONG = "ONSALE_EXAMPLES"


def bounded(*, examples: int, steps: int) -> settings:
    """New histories each time, by the seed that the run prints. What is found is shown as it was found: shrinking it on
    real engines takes longer than reading it.
    """
    return settings(
        max_examples=int(os.environ.get(LONG, examples)),
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
    """On these engines."""
    here = type(f"{machine.__name__}Here", (machine,), {"redis_url": redis_url, "postgres_url": postgres_url, **named})
    run_state_machine_as_test(here, settings=settings)
