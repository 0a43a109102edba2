"""How long the state machines run: a few fixed examples in `make test`, random ones with `ONSALE_EXAMPLES=2000`."""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LONG = "ONSALE_EXAMPLES"


def bounded(*, examples: int, steps: int) -> settings:
    """The same examples each time, unless a long run is asked for. What is found is shown as it was found: shrinking it
    on real engines takes longer than reading it.
    """
    many = int(os.environ.get(LONG, 0))
    return settings(
        max_examples=many or examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not many,
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
