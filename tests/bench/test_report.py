"""The report of the benchmarks: ratios of medians, one line for each claim, and a file for each result."""

from array import array
from collections import Counter
from pathlib import Path

import pytest

from bench.__main__ import BENCH_DIR, MEASUREMENTS, parse_options
from bench.harness.load import LoadResult
from bench.harness.measurement import CheckFailed, Claim, Figures, Finding, Measurement, Round, summarize
from bench.line.joins import joins
from bench.line.memory import memory
from bench.line.status import status
from bench.record import report, results
from bench.stock.reservations import reservations


def with_rounds(measurement: Measurement, *, ours: tuple[float, ...], theirs: tuple[float, ...]) -> Measurement:
    for side, rates in zip(measurement.sides, (ours, theirs), strict=True):
        measurement.rounds[side.name] = [Round(rate, 1, 2, 3, 10, {409: 1}, 0, ["no number twice"]) for rate in rates]
    return measurement


def saved_result(measurement: Measurement | Finding, date: str = "2026-11-21", **machine: str) -> results.Result:
    return results.Result.of(
        measurement, date=date, how="python -m bench", machine=machine, engines={"fsync": "on"}, code="c"
    )


def test_the_ratio_compares_medians() -> None:
    measurement = with_rounds(joins(), ours=(600, 900, 1000), theirs=(100, 300, 200))
    assert measurement.ratio == 4.5
    assert measurement.ratios == [6, 3, 5]
    text = results.document([saved_result(measurement)])
    assert "**RATIO 4.5 × (round by round 3.0 to 6.0; at least 3.5, aim 6)**" in text
    assert "| ours | 600 | 900 | 1,000 | 1.0 | 2.0 | 3.0 | 3 × 409 |" in text
    assert "- fsync: on" in text


def test_a_ratio_by_processor_time_ignores_the_load_generator() -> None:
    measurement = status()
    for side, per_cpu_s in zip(measurement.sides, (30_000, 50_000), strict=True):
        measurement.rounds[side.name] = [Round(9_000, 1, 2, 3, 10, {}, 0, ["right"], per_cpu_s)]
    assert measurement.ratio == 0.6
    assert "**RATIO 0.60 × (round by round 0.60 to 0.60; at least 0.4, aim 0.6)**" in report.section(measurement)
    result = LoadResult(1, latencies_ms=array("d", [1.0]), statuses=Counter({200: 500, 503: 1}))
    assert summarize(result, [], wanted=200, cpu_s=0.5).per_cpu_s == 1_000
    assert summarize(result, [], wanted=200, cpu_s=0.5).other_statuses == {503: 1}


def test_the_summary_has_one_line_for_each_claim() -> None:
    claims = [Claim("P8 bytes a fan", "0.5", "sorted set 100", "200 × less", "at most 2")]
    finding = Finding("P8", "memory", ["How it was done."], memory().find)
    finding.figures = Figures(("fans", "bytes"), [("10", "0.5")], claims, ["nothing was lost"])
    measured_joins = with_rounds(joins(), ours=(900,), theirs=(200,))
    summary = report.summary([*report.claims(measured_joins), *report.claims(finding)])
    assert "| P1 durable joins | 900/s | textbook 200/s | 4.5 × | at least 3.5, aim 6 |" in summary
    assert "| P8 bytes a fan | 0.5 | sorted set 100 | 200 × less | at most 2 |" in summary
    text = results.document([saved_result(measured_joins), saved_result(finding)])
    assert summary in text
    assert "**P8 bytes a fan: 0.5, beside sorted set 100: RATIO 200 × less (at most 2)**" in text
    assert "| 10 | 0.5 |" in text
    assert "- nothing was lost" in text


def test_a_new_result_leaves_the_other_results_unchanged(tmp_path: Path) -> None:
    earlier = saved_result(with_rounds(joins(), ours=(600,), theirs=(200,)), python="3.10")
    results.save(tmp_path, "joins", earlier)
    results.save(
        tmp_path, "reservations", saved_result(with_rounds(reservations(), ours=(50,), theirs=(100,)), python="3.10")
    )
    results.save(
        tmp_path, "joins", saved_result(with_rounds(joins(), ours=(800,), theirs=(200,)), "2026-11-22", python="3.11")
    )
    text = results.document(results.saved(tmp_path, MEASUREMENTS))
    assert "| P1 durable joins | 800/s | textbook 200/s | 4.0 × |" in text
    assert "600/s" not in text
    assert text.index("## P1") < text.index("`python -m bench` on 2026-11-22.") < text.index("## P4")
    assert "`python -m bench` on 2026-11-21, with python 3.10." in text
    assert "- python: 3.11" in text


def test_the_report_is_generated_from_the_results_and_the_readme_quotes_it() -> None:
    text = (BENCH_DIR / "RESULTS.md").read_text()
    assert text == results.document(results.saved(BENCH_DIR / "results", MEASUREMENTS))
    readme = (BENCH_DIR.parent / "README.md").read_text()
    table = readme[readme.index("### Side by side") :].partition("|---|")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(table) > 5
    assert [line for line in table if line not in text] == []


def test_a_round_that_ran_out_or_was_never_answered_has_no_figures() -> None:
    with pytest.raises(CheckFailed, match="ran out"):
        summarize(LoadResult(1, ran_out=True), [])
    with pytest.raises(CheckFailed, match="nothing was answered 201"):
        summarize(LoadResult(1), [])


def test_without_a_name_all_benchmarks_run_and_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_options([]).names == list(MEASUREMENTS)
    assert parse_options(["joins", "--rounds", "1"]).effort.rounds == 1
    assert parse_options(["--quick"]).effort.quick
    with pytest.raises(SystemExit):
        parse_options(["cold-fusion"])
    assert "there is no measurement cold-fusion" in capsys.readouterr().err
