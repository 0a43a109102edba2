"""The plan counts with what was measured, with settings as they are, and the page shows what the command answers."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from bench.harness.measurement import Claim
from bench.harness.results import Result, read, save
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

KNOWN = parse(PATH.read_text())
AGAIN = "measured anew: run `python -m bench.scale.coefficients`"
SECTION = """## X: something

|  | processes | per second | gateway µs |
|---|---:|---:|---:|
| join | 1 gateway | 9,192 | 71.5 |
| join | 2 gateways | 9,000 |  |
"""


def test_the_plan_counts_with_what_was_measured_last() -> None:
    results = {name: read(HERE / "results" / f"{name}.json") for name in KNOWN.measurements}
    assert with_results(KNOWN, results) == KNOWN, AGAIN
    assert as_yaml(PATH.read_text(), KNOWN) == PATH.read_text(), AGAIN


def test_the_page_shows_what_the_command_answers() -> None:
    assert updated_guide(GUIDE.read_text(), KNOWN) == GUIDE.read_text(), AGAIN
    assert GUIDE.read_text().count("$ onsale plan ") >= 3


def test_the_options_the_page_names_are_options_of_a_room() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    room = RoomPart.model_validate(yaml.safe_load(example)["room"])
    [planned_for] = re.findall(r"--window-ms (\d+) --liveness-s (\d+)", GUIDE.read_text())[:1]
    assert (str(room.updates.window_ms), str(room.liveness_window_s)) == planned_for


def test_every_figure_has_a_source() -> None:
    for one in KNOWN:
        assert one.source, one.name
        if one.kind == "measured":
            assert one.source[0] in KNOWN.measurements, one.name
    assert all(measured.date and measured.machine for measured in KNOWN.measurements.values())


def test_defaults_are_what_the_settings_say() -> None:
    gateway, notifier = GatewaySettings(), NotifierSettings()
    assert KNOWN["streams_max"] == notifier.streams_max
    assert KNOWN["postgres_pool_max"] == gateway.postgres_pool_max == Settings().postgres_pool_max
    assert KNOWN["join_batches_in_flight_max"] == Settings().join_batches_in_flight_max
    assert KNOWN["ticks_per_s"] == 1 / Settings().tick_s
    assert KNOWN["frames.kept_bytes"] == snapshots.LOG_BYTES_MAX
    assert KNOWN["poll_every_s"] == pytest.approx(gateway.poll_max_ms / 1000 * 0.9 * 0.9)


@pytest.mark.parametrize(("operation", "row"), [
    ("join", "join | 1 gateway, 1 queue"), ("status", "status | 1 gateway"), ("sign", "sign of life | 1 queue"),
    ("seats", "seats | 1 inventory"), ("hold", "hold | 1 inventory"), ("order", "order | 1 orders"),
])  # fmt: skip
def test_the_case_that_was_measured_comes_back_as_it_was(operation: str, row: str) -> None:
    measured = read(HERE / "results" / "processes.json").section
    nothing, _ = moments(Sale(1, 1), KNOWN)
    case = dataclasses.replace(
        nothing, per_s=dict.fromkeys(nothing.per_s, 0.0) | {operation: figure(measured, row, "per second")}
    )
    spent = sum(cores_used(case, name, KNOWN) for name in (*SERVICES, "postgres", "valkey"))
    assert spent == pytest.approx(figure(measured, row, "cores in all"), rel=0.03)
    assert spent < 2, "more than the machine has"


def test_memory_that_was_measured_comes_back_as_it_was() -> None:
    plan = plan_sale(Sale(2_000_000, 100), KNOWN)
    assert plan.redis.line_mib * 2**20 / 2_000_000 == pytest.approx(KNOWN["place.bytes"])
    assert plan_sale(Sale(15_000, 100), KNOWN).streams.memory_mib * 1024 / 15_000 == pytest.approx(KNOWN["stream_kib"])


def test_a_figure_is_found_by_how_its_row_begins() -> None:
    assert figure(SECTION, "join", "per second") == 9192
    assert figure(SECTION, "join | 1 gateway", "gateway µs") == 71.5
    assert figure(SECTION, "join | 2 gateways", "gateway µs") == 0
    for row, column in (("leave", "per second"), ("join", "queue µs")):
        with pytest.raises(LookupError, match="no figure"):
            figure(SECTION, row, column)


def test_what_is_measured_anew_is_counted_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = dataclasses.replace(KNOWN.each["join.gateway"], value=1.0, source=("x", "join | 1 gateway", "gateway µs"))
    only = dataclasses.replace(
        KNOWN, each=KNOWN.each | {one.name: one}, measurements={"x": MeasurementSource("then", "there")}
    )
    place, page = tmp_path / "coefficients.yaml", tmp_path / "capacity.md"
    place.write_text(as_yaml("# What it is.\n", only))
    page.write_text("Before.\n\n```\n$ onsale plan --fans 10 --tickets 5\nold\n```\n\nAfter.\n")
    claim = Claim("x", "1", "2", "3")
    save(tmp_path, "x", Result([claim], SECTION, "now", "so", {"Processor": "here"}, {}))
    monkeypatch.setattr(coefficients, "PATH", place)
    monkeypatch.setattr(coefficients, "GUIDE", page)
    coefficients.update_files(tmp_path)
    found = parse(place.read_text())
    assert place.read_text().startswith("# What it is.\n")
    assert (found["join.gateway"], found["join.queue"]) == (71.5, KNOWN["join.queue"])
    assert found.measurements == {"x": MeasurementSource("now", "here")}
    said = page.read_text()
    assert "\nold\n" not in said
    assert said.startswith("Before.")
    assert said.endswith("After.\n")
    assert "on here." in said
