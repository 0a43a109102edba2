"""Records of measurements: ratios, a file for each, the code they measured, and what is written from them."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from array import array
from collections import Counter
from pathlib import Path

import orjson
import pytest
import yaml

from bench.__main__ import BENCH_DIR, MEASUREMENTS, ON_THE_PAGE, PAGE, parse_options
from bench.harness.cost import Cost, LoadSummary
from bench.harness.load import LoadResult
from bench.harness.measurement import CheckFailed, Claim, Figures, Finding, Measurement, Round, summarize
from bench.line.joins import joins
from bench.line.memory import memory
from bench.line.status import status
from bench.record import excerpts, front, report, results
from bench.record.digest import CODE, EVERYWHERE, ROOT, digest
from bench.scale import coefficients
from bench.scale.coefficients import GUIDE, as_yaml, figure, updated_guide, with_results
from bench.scale.processes import HEADINGS, ProcessCosts, _section_row
from bench.scale.processes import claims as process_claims
from bench.stock.reservations import reservations
from bench.streams.streams import StreamFigures, claims, plot
from onsale.capacity.calculation import SERVICES, plan_sale, processor_s
from onsale.capacity.sale import PATH, MeasurementSource, Sale, moments, parse
from services.gateway.settings import Settings as GatewaySettings
from services.gateway.tuning import DEFAULTS as GATEWAY_TUNING
from services.gateway.waiting_line import snapshot
from services.notifier.settings import Settings as NotifierSettings
from services.queue.settings import Settings
from services.queue.tuning import DEFAULTS
from shared.contracts.event_file import RoomPart
from shared.messaging import snapshots

COEFFICIENTS = parse(PATH.read_text())
RECORDS = {name: results.read(BENCH_DIR / "results" / f"{name}.json") for name in COEFFICIENTS.measurements}


def with_rounds(measurement: Measurement, *, ours: tuple[float, ...], theirs: tuple[float, ...]) -> Measurement:
    for side, rates in zip(measurement.sides, (ours, theirs), strict=True):
        measurement.rounds[side.name] = [
            Round(rate, 1, 2, 3, 10, {409: 1}, 0, ["no number twice"], 2 * rate) for rate in rates
        ]
    return measurement


def record(measurement: Measurement | Finding, date: str = "2026-11-21", **machine: str) -> results.Result:
    return results.Result.of(measurement, date=date, how="bench", machine=machine, engines={"fsync": "on"}, code="c")


def test_the_ratio_compares_the_medians_of_processor_time_and_a_budget_is_scaled_to_the_machine() -> None:
    measured = with_rounds(joins(), ours=(600, 900, 1000), theirs=(100, 300, 200))
    measured.rounds[measured.sides[1].name] = [
        dataclasses.replace(each, per_second=50_000) for each in measured.rounds[measured.sides[1].name]
    ]  # a rival that is faster by using more processors
    measured.bare_per_cpu_s = 50_000
    assert (measured.ratio, measured.ratios) == (4.5, [6, 3, 5])
    text = report.section(measured)
    assert "**RATIO 4.5 × (round by round 3.0 to 6.0; at least 3.5, aim 6)**" in text
    assert "| ours | 600 | 900 | 1,000 | 1.0 | 2.0 | 3.0 | 3 × 409 | 556 |" in text
    compared, budget = report.claims(measured)
    assert (compared.ours, compared.beside) == ("900/s, 556 µs", "textbook 50,000/s, 2,500 µs")
    assert (budget.ours, budget.beside) == ("556 µs", "bare uvicorn 20 µs")
    assert (budget.ratio, budget.aims) == ("1,111 µs where that is 40", "at most 200 µs, aim 130")
    assert len(report.claims(with_rounds(status(), ours=(900,), theirs=(9,)))) == 1
    result = LoadResult(1, latencies_ms=array("d", [1.0]), statuses=Counter({200: 500, 503: 1}))
    assert summarize(result, [], wanted=200, cpu_s=0.5).per_cpu_s == 1_000
    for unmeasured in (LoadResult(1, ran_out=True), LoadResult(1)):
        with pytest.raises(CheckFailed):
            summarize(unmeasured, [])


def test_a_new_record_leaves_the_others_unchanged_and_the_report_shows_all(tmp_path: Path) -> None:
    finding = Finding("P8", "memory", ["How it was done."], memory().find)
    claim = Claim("P8 bytes a fan", "0.5", "sorted set 100", "200 × less", "at most 2")
    finding.figures = Figures(("fans", "bytes"), [("10", "0.5")], [claim], ["nothing was lost"])
    for name, saved in {
        "joins": record(with_rounds(joins(), ours=(600,), theirs=(200,)), python="3.10"),
        "reservations": record(with_rounds(reservations(), ours=(50,), theirs=(100,)), python="3.10"),
        "memory": record(finding, python="3.10"),
    }.items():
        results.save(tmp_path, name, saved)
    results.save(
        tmp_path, "joins", record(with_rounds(joins(), ours=(800,), theirs=(200,)), "2026-11-22", python="3.11")
    )
    text = results.document(results.saved(tmp_path, MEASUREMENTS))
    for line in (
        "| P1 durable joins | 800/s, 625 µs | textbook 200/s, 2,500 µs | 4.0 × | at least 3.5, aim 6 |",
        "- python: 3.11", "- fsync: on",
        "| P8 bytes a fan | 0.5 | sorted set 100 | 200 × less | at most 2 |", "- nothing was lost", "| 10 | 0.5 |",
        "**P8 bytes a fan: 0.5, beside sorted set 100: RATIO 200 × less (at most 2)**",
        "`bench` on 2026-11-21, with python 3.10.",
    ):  # fmt: skip
        assert line in text
    assert "600/s" not in text
    assert text.index("## P1") < text.index("`bench` on 2026-11-22.") < text.index("## P4")


def test_the_report_and_the_tables_of_documents_are_generated_from_the_records() -> None:
    text = (BENCH_DIR / "RESULTS.md").read_text()
    assert text == results.document(results.saved(BENCH_DIR / "results", MEASUREMENTS))
    page, readme = PAGE.read_text(), (BENCH_DIR.parent / "README.md").read_text()
    assert page == results.page_with(page, results.saved(BENCH_DIR / "results", ON_THE_PAGE))
    assert readme == front.MEASURED.replaced(readme, front.measured(BENCH_DIR / "results"))
    assert page.index("whole purchases, provider at 50 ms") < page.index("| P1 durable joins")


def test_parts_of_records_stand_in_pages_as_in_the_latest_record() -> None:
    for each in excerpts.EXCERPTS:
        page = (ROOT / each.page).read_text()
        assert page == each.block.replaced(page, each.content(BENCH_DIR / "results")), each.name
    with pytest.raises(LookupError, match="streams has no row"):
        excerpts.Excerpt("page", "name", "streams", ("7 listeners",)).content(BENCH_DIR / "results")
    with pytest.raises(LookupError, match="joins has no claim"):
        excerpts.Claims("page", "name", (("joins", "P0 "),)).content(BENCH_DIR / "results")


def test_a_part_of_a_record_leaves_out_columns_that_are_empty_in_it() -> None:
    lines = ["| call | n | µs |", "|---|---:|---:|", "| a |  | 1 |", "| b |  |  |"]
    assert excerpts._without_empty_columns(lines) == ["| call | µs |", "|---|---:|", "| a | 1 |", "| b |  |"]


def test_options_choose_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_options([]).names == list(MEASUREMENTS)
    assert parse_options(["joins", "--rounds", "1"]).effort.rounds == 1
    assert (parse_options(["--quick"]).effort.quick, parse_options(["joins", "--anyway"]).anyway) == (True, True)
    with pytest.raises(SystemExit):
        parse_options(["cold-fusion"])
    assert "there is no measurement cold-fusion" in capsys.readouterr().err


def test_every_measurement_describes_its_settings() -> None:
    for name, make in MEASUREMENTS.items():
        measurement = make()
        assert measurement.settings, name
        assert isinstance(measurement, Finding) or measurement.aim >= measurement.at_least


def test_claims_compare_with_one_process_and_are_those_of_the_most_listeners() -> None:
    variants = [
        ProcessCosts("join", "gateway", processes, [Cost(LoadSummary(10, per_second, 5.0), {"gateway": us})])
        for processes, per_second, us in (("1 gateway", 1000, 80), ("2 gateways", 1500, 90))
    ]
    assert process_claims(variants) == [
        Claim(
            "join, 2 gateways",
            "1,500/s, 90 µs of gateway, 90 in all",
            "1 gateway 1,000/s, 80 µs of gateway, 80 in all",
            "1.50 ×",
        )
    ]
    assert len(variants[0].row()) == len(HEADINGS) == len(_section_row())
    assert dict(zip(HEADINGS, variants[0].row(), strict=True))["cores in all"] == "0.08"
    listened = [
        StreamFigures(size, side, kib, us, 1, p99, 3, 1000, 0)
        for size in (1_000, 15_000)
        for side, kib, us, p99 in (("ours, detached", 1.5, 4.0, 80.0), ("nchan", 12.0, 8.0, 100.0))
    ]
    assert [claim.ratio for claim in claims(listened)] == ["8.0 × less", "0.50 ×", "0.80 ×"]
    picture = ET.fromstring(plot(listened))
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}polyline")) == 2 * 3


# -- the code of a record ----------------------------------------------------------------------------------------------


def test_every_measurement_says_which_code_it_depends_on() -> None:
    assert {*MEASUREMENTS, "night"} == CODE.keys()
    assert all((ROOT / place).exists() for places in (*CODE.values(), EVERYWHERE) for place in places)


@pytest.mark.parametrize(
    ("name", "follows"),
    [("services/queue/one.py", True), ("services/queue/new.sql", True), ("shared/lua/new.lua", True),
     ("services/orders/one.py", False), ("services/queue/notes.md", False)],
)  # fmt: skip
def test_a_digest_follows_the_measured_code_and_ignores_other_code(tmp_path: Path, name: str, follows: bool) -> None:
    for place in (*CODE["joins"], *EVERYWHERE):
        file = tmp_path / place if Path(place).suffix else tmp_path / place / "one.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    before = digest("joins", tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("2")
    assert (digest("joins", tmp_path) != before) == follows


def test_a_record_of_other_code_is_stale(tmp_path: Path) -> None:
    for name, of in (("joins", digest("joins")), ("status", "other")):
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps({"date": "2030-01-01", "code": of}))
    assert results.stale(tmp_path) == {"status": "2030-01-01"}


@pytest.mark.proof
def test_no_record_is_older_than_the_code_it_measured() -> None:
    """Red until `make bench` has measured again what has changed since."""
    assert results.stale(BENCH_DIR / "results") == {}


# -- the coefficients of `onsale plan` ---------------------------------------------------------------------------------


def test_coefficients_and_guide_are_written_from_the_latest_records() -> None:
    assert as_yaml(PATH.read_text(), with_results(COEFFICIENTS, RECORDS)) == PATH.read_text(), coefficients.__doc__
    assert updated_guide(GUIDE.read_text(), COEFFICIENTS) == GUIDE.read_text(), coefficients.__doc__
    assert GUIDE.read_text().count("$ onsale plan ") >= 3
    assert all(one.source[0] in RECORDS for one in COEFFICIENTS if one.kind == "measured")


def test_the_options_in_the_guide_are_fields_of_a_room() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    room = RoomPart.model_validate(yaml.safe_load(example)["room"])
    [options] = re.findall(r"--window-ms (\d+) --liveness-s (\d+)", GUIDE.read_text())[:1]
    assert (str(room.updates.window_ms), str(room.liveness_window_s)) == options


def test_coefficients_of_settings_are_their_defaults() -> None:
    gateway, queue = GatewaySettings(), Settings()
    assert COEFFICIENTS["streams_max"] == NotifierSettings().streams_max
    assert COEFFICIENTS["postgres_pool_max"] == gateway.postgres_pool_max == queue.postgres_pool_max
    assert COEFFICIENTS["join_batches_in_flight_max"] == DEFAULTS.join_batches_in_flight_max
    assert COEFFICIENTS["ticks_per_s"] == 1 / DEFAULTS.tick_s
    assert COEFFICIENTS["frames.kept_bytes"] == snapshots.LOG_BYTES_MAX
    assert COEFFICIENTS["poll_max_s"] == GATEWAY_TUNING.poll_max_ms / 1000
    assert COEFFICIENTS["line_read_s"] == 2 * GATEWAY_TUNING.poll_min_ms / 1000
    of_the_line = {"more_calls": snapshot.MORE_CALLS, "heartbeat_windows": snapshot.HEARTBEAT_WINDOWS,
                   "line_reads_per_poll": snapshot.LINE_READS, "near_s": snapshot.NEAR_S,
                   "calls_at_once": snapshot.CALLS_AT_ONCE}  # fmt: skip
    assert {name: COEFFICIENTS[name] for name in of_the_line} == of_the_line
    assert Sale(1, 1).polls_per_s == gateway.polls_per_s


@pytest.mark.parametrize(("operation", "row"), [
    ("join", "join | 1 gateway, 1 queue"), ("status", "status | 1 gateway"), ("sign", "sign of life | 1 queue"),
    ("seats", "seats | 1 inventory"), ("hold", "hold | 1 inventory"), ("order", "order | 1 orders"),
])  # fmt: skip
def test_the_plan_of_a_measured_case_gives_the_measured_cores(operation: str, row: str) -> None:
    measured = RECORDS["processes"].section
    empty, _ = moments(Sale(1, 1), COEFFICIENTS)
    rates = dict.fromkeys(empty.per_s, 0.0) | {operation: figure(measured, row, "per second")}
    spent = sum(processor_s(rates, name, COEFFICIENTS) for name in (*SERVICES, "postgres", "valkey"))
    assert spent < 2, "more than the machine has"
    assert spent == pytest.approx(figure(measured, row, "cores in all"), rel=0.03)


def test_the_plan_of_a_measured_case_gives_the_measured_memory() -> None:
    line, streams = plan_sale(Sale(2_000_000, 100), COEFFICIENTS), plan_sale(Sale(15_000, 100), COEFFICIENTS)
    assert line.redis.line_mib * 2**20 / 2_000_000 == pytest.approx(COEFFICIENTS["place.bytes"])
    assert streams.streams.memory_mib * 1024 / 15_000 == pytest.approx(COEFFICIENTS["stream_kib"])


def test_a_new_record_updates_the_coefficients_and_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = (
        "|  | processes | gateway µs |\n|---|---:|---:|\n| join | 1 gateway | 9,071.5 |\n| join | 2 gateways |  |\n"
    )
    for row, column in (("leave", "gateway µs"), ("join", "queue µs")):
        with pytest.raises(LookupError, match="no figure"):
            figure(section, row, column)
    assert (figure(section, "join", "gateway µs"), figure(section, "join | 2 gateways", "gateway µs")) == (9071.5, 0)
    one = dataclasses.replace(COEFFICIENTS.each["join.gateway"], value=1.0, source=("x", "join", "gateway µs"))
    each, earlier = COEFFICIENTS.each | {one.name: one}, {"x": MeasurementSource("earlier", "another machine")}
    path, guide = tmp_path / "coefficients.yaml", tmp_path / "capacity.md"
    path.write_text(as_yaml("# Header.\n", dataclasses.replace(COEFFICIENTS, each=each, measurements=earlier)))
    guide.write_text("Before.\n\n```\n$ onsale plan --fans 10 --tickets 5\nold\n```\n\nAfter.\n")
    results.save(tmp_path, "x", results.Result([], section, "now", "so", {"Processor": "here"}, {}))
    monkeypatch.setattr(coefficients, "PATH", path)
    monkeypatch.setattr(coefficients, "GUIDE", guide)
    coefficients.update_files(tmp_path)
    found = parse(path.read_text())
    assert path.read_text().startswith("# Header.\n")
    assert (found["join.gateway"], found["join.queue"]) == (9071.5, COEFFICIENTS["join.queue"])
    assert found.measurements == {"x": MeasurementSource("now", "here")}
    updated = guide.read_text()
    assert re.fullmatch(r"Before\..*on here\..*After\.\n", updated, re.DOTALL)
    assert "\nold\n" not in updated
