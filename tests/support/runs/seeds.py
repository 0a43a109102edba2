"""Gives each run of the property tests a new seed, and prints it if the run fails: the same seed repeats the run.

A rerun of failed tests (`--last-failed`) uses the seed of the failed run: another one would hide the failure.
"""

import os
import random

import pytest
from hypothesis import settings

settings.register_profile("no timed tests", deadline=None)
settings.register_profile("few examples", deadline=None, max_examples=10)  # for `make fast`
settings.load_profile("no timed tests")
VARIABLE, CACHE_KEY = "ONSALE_HYPOTHESIS_SEED", "onsale/hypothesis_seed"


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the seed before Hypothesis reads it: plugins of a conftest come before installed ones. Worker processes
    inherit it by the environment.
    """
    cache = config.cache
    assert cache is not None
    if config.option.hypothesis_seed is None:
        if VARIABLE not in os.environ:
            previous = cache.get(CACHE_KEY, None) if config.option.lf else None
            os.environ[VARIABLE] = str(previous or random.SystemRandom().randrange(2**32))
        config.option.hypothesis_seed = os.environ[VARIABLE]
    if not hasattr(config, "workerinput"):
        cache.set(CACHE_KEY, config.option.hypothesis_seed)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"Repeat the property tests with --hypothesis-seed={config.option.hypothesis_seed}")
