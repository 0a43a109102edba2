"""Property tests look for new histories in each run; the seed of a run that failed is printed, and gives them again.

A rerun of what failed (`--last-failed`) uses the seed of the run: another one would hide what was found.
"""

import os
import random

import pytest
from hypothesis import settings

settings.register_profile("no timed tests", deadline=None)
settings.load_profile("no timed tests")
VARIABLE, KEPT = "ONSALE_HYPOTHESIS_SEED", "onsale/hypothesis_seed"


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the seed before Hypothesis's own plugin reads it, as plugins of a conftest come before installed ones;
    processes that share the tests inherit the choice.
    """
    cache = config.cache
    assert cache is not None
    if config.option.hypothesis_seed is None:
        if VARIABLE not in os.environ:
            before = cache.get(KEPT, None) if config.option.lf else None
            os.environ[VARIABLE] = str(before or random.SystemRandom().randrange(2**32))
        config.option.hypothesis_seed = os.environ[VARIABLE]
    if not hasattr(config, "workerinput"):
        cache.set(KEPT, config.option.hypothesis_seed)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(
            f"Property tests again as they were: --hypothesis-seed={config.option.hypothesis_seed}"
        )
