"""The testbed of the tests of benchmarks."""

from tests.bench.conftest import testbed, trial  # noqa: F401 - fixtures
