"""Twenty seconds of the load: it is held, and what was sold is in all books."""

from proof.load.run import run
from proof.part import Budget


def test_a_short_run_counts_requests_and_loses_nothing() -> None:
    result = run(Budget(20, 1))
    assert result.counts["requests"] > 100
    assert not [sentence for sentence in result.found if "books" in sentence or "bought" in sentence]
    assert [trial.lost for trial in result.trials] == [0]
