"""The ratio compares medians, and what is written down says so."""

import pytest

from bench import report
from bench.__main__ import MEASUREMENTS, parsed
from bench.load import Heard
from bench.measurement import Measurement, Round, Wrong, summed_up


def played(measurement: Measurement, *, ours: tuple[float, ...], theirs: tuple[float, ...]) -> Measurement:
    for side, rates in zip(measurement.sides, (ours, theirs), strict=True):
        measurement.rounds[side.name] = [Round(rate, 1, 2, 3, 10, {409: 1}, 0, ["no number twice"]) for rate in rates]
    return measurement


def test_the_ratio_is_of_the_medians() -> None:
    measurement = played(MEASUREMENTS["joins"](), ours=(600, 900, 1000), theirs=(100, 300, 200))
    assert measurement.ratio == 4.5
    assert measurement.ratios == [6, 3, 5]
    text = report.document([measurement], machine={"Memory": "8 GiB"}, engines={"fsync": "on"}, date="d", how="h")
    assert "**RATIO 4.5 × (round by round 3.0 to 6.0; at least 3.5, aim 6)**" in text
    assert "| ours | 600 | 900 | 1,000 | 1.0 | 2.0 | 3.0 | 3 × 409 |" in text
    assert "- fsync: on" in text


def test_a_round_that_did_not_do_what_was_asked_has_no_figures() -> None:
    with pytest.raises(Wrong, match="ran out"):
        summed_up(Heard(1, ran_out=True), [])
    with pytest.raises(Wrong, match="nothing was created"):
        summed_up(Heard(1), [])


def test_no_name_means_everything_and_a_wrong_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed([]).names == ["joins", "reservations"]
    assert parsed(["joins", "--rounds", "1"]).rounds == 1
    with pytest.raises(SystemExit):
        parsed(["cold-fusion"])
    assert "there is no measurement cold-fusion" in capsys.readouterr().err
