"""The coefficients of `onsale plan` are the latest measurements and settings, and the guide shows its real output."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from bench.harness.measurement import Claim
from bench.record.results import Result, read, save
from bench.scale import coefficients
from bench.scale.coefficients import GUIDE, HERE, as_yaml, figure, updated_guide, with_results
from onsale.capacity.calculation import SERVICES, cores_used, plan_sale
from onsale.capacity.coefficients import PATH, MeasurementSource, parse
from onsale.capacity.sale import Sale, moments
from services.gateway.settings import Settings as GatewaySettings
from services.notifier.settings import Settings as NotifierSettings
from services.queue.settings import Settings
from shared.contracts.event_file import RoomPart
from shared.redis import snapshots

COEFFICIENTS = parse(PATH.read_text())
OUTDATED = "results have changed: run `python -m bench.scale.coefficients`"
SECTION = """## X: something

|  | processes | per second | gateway µs |
|---|---:|---:|---:|
| join | 1 gateway | 9,192 | 71.5 |
| join | 2 gateways | 9,000 |  |
"""


def test_the_coefficients_are_those_of_the_latest_results() -> None:
    results = {name: read(HERE / "results" / f"{name}.json") for name in COEFFICIENTS.measurements}
    assert with_results(COEFFICIENTS, results) == COEFFICIENTS, OUTDATED
    assert as_yaml(PATH.read_text(), COEFFICIENTS) == PATH.read_text(), OUTDATED


def test_the_guide_shows_the_output_of_the_command() -> None:
    assert updated_guide(GUIDE.read_text(), COEFFICIENTS) == GUIDE.read_text(), OUTDATED
    assert GUIDE.read_text().count("$ onsale plan ") >= 3


def test_the_options_in_the_guide_are_fields_of_a_room() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    room = RoomPart.model_validate(yaml.safe_load(example)["room"])
    [options] = re.findall(r"--window-ms (\d+) --liveness-s (\d+)", GUIDE.read_text())[:1]
    assert (str(room.updates.window_ms), str(room.liveness_window_s)) == options


def test_every_coefficient_has_a_source() -> None:
    for one in COEFFICIENTS:
        assert one.source, one.name
        if one.kind == "measured":
            assert one.source[0] in COEFFICIENTS.measurements, one.name
    assert all(measured.date and measured.machine for measured in COEFFICIENTS.measurements.values())


def test_coefficients_of_settings_are_their_defaults() -> None:
    gateway, notifier = GatewaySettings(), NotifierSettings()
    assert COEFFICIENTS["streams_max"] == notifier.streams_max
    assert COEFFICIENTS["postgres_pool_max"] == gateway.postgres_pool_max == Settings().postgres_pool_max
    assert COEFFICIENTS["join_batches_in_flight_max"] == Settings().join_batches_in_flight_max
    assert COEFFICIENTS["ticks_per_s"] == 1 / Settings().tick_s
    assert COEFFICIENTS["frames.kept_bytes"] == snapshots.LOG_BYTES_MAX
    assert COEFFICIENTS["poll_every_s"] == pytest.approx(gateway.poll_max_ms / 1000 * 0.9 * 0.9)


@pytest.mark.parametrize(("operation", "row"), [
    ("join", "join | 1 gateway, 1 queue"), ("status", "status | 1 gateway"), ("sign", "sign of life | 1 queue"),
    ("seats", "seats | 1 inventory"), ("hold", "hold | 1 inventory"), ("order", "order | 1 orders"),
])  # fmt: skip
def test_the_plan_of_a_measured_case_gives_the_measured_cores(operation: str, row: str) -> None:
    measured = read(HERE / "results" / "processes.json").section
    empty, _ = moments(Sale(1, 1), COEFFICIENTS)
    case = dataclasses.replace(
        empty, per_s=dict.fromkeys(empty.per_s, 0.0) | {operation: figure(measured, row, "per second")}
    )
    spent = sum(cores_used(case, name, COEFFICIENTS) for name in (*SERVICES, "postgres", "valkey"))
    assert spent == pytest.approx(figure(measured, row, "cores in all"), rel=0.03)
    assert spent < 2, "more than the machine has"


def test_the_plan_of_a_measured_case_gives_the_measured_memory() -> None:
    plan = plan_sale(Sale(2_000_000, 100), COEFFICIENTS)
    assert plan.redis.line_mib * 2**20 / 2_000_000 == pytest.approx(COEFFICIENTS["place.bytes"])
    assert plan_sale(Sale(15_000, 100), COEFFICIENTS).streams.memory_mib * 1024 / 15_000 == pytest.approx(
        COEFFICIENTS["stream_kib"]
    )


def test_a_figure_is_found_by_the_start_of_its_row() -> None:
    assert figure(SECTION, "join", "per second") == 9192
    assert figure(SECTION, "join | 1 gateway", "gateway µs") == 71.5
    assert figure(SECTION, "join | 2 gateways", "gateway µs") == 0
    for row, column in (("leave", "per second"), ("join", "queue µs")):
        with pytest.raises(LookupError, match="no figure"):
            figure(SECTION, row, column)


def test_a_new_result_updates_the_coefficients_and_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = dataclasses.replace(
        COEFFICIENTS.each["join.gateway"], value=1.0, source=("x", "join | 1 gateway", "gateway µs")
    )
    only = dataclasses.replace(
        COEFFICIENTS,
        each=COEFFICIENTS.each | {one.name: one},
        measurements={"x": MeasurementSource("earlier", "another machine")},
    )
    path, guide = tmp_path / "coefficients.yaml", tmp_path / "capacity.md"
    path.write_text(as_yaml("# Header.\n", only))
    guide.write_text("Before.\n\n```\n$ onsale plan --fans 10 --tickets 5\nold\n```\n\nAfter.\n")
    claim = Claim("x", "1", "2", "3")
    save(tmp_path, "x", Result([claim], SECTION, "now", "so", {"Processor": "here"}, {}))
    monkeypatch.setattr(coefficients, "PATH", path)
    monkeypatch.setattr(coefficients, "GUIDE", guide)
    coefficients.update_files(tmp_path)
    found = parse(path.read_text())
    assert path.read_text().startswith("# Header.\n")
    assert (found["join.gateway"], found["join.queue"]) == (71.5, COEFFICIENTS["join.queue"])
    assert found.measurements == {"x": MeasurementSource("now", "here")}
    updated = guide.read_text()
    assert "\nold\n" not in updated
    assert updated.startswith("Before.")
    assert updated.endswith("After.\n")
    assert "on here." in updated
