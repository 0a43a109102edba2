"""A small night runs whole on the real suite."""

from xml.etree import ElementTree as ET

from bench.harness.testbed import Testbed
from bench.night.__main__ import night, parse_options


async def test_a_small_night_runs_whole(testbed: Testbed) -> None:
    ended = await night(testbed, parse_options(["--fans", "600", "--tickets", "12", "--minutes", "2"]))
    assert ended.failures == []
    figures = ended.figures()
    assert (figures["sold"], figures["fans"], figures["checkout_errors"]) == (12, 600, 0)
    assert figures["streams"] == 60
    assert figures["calls_ms"]["join"]["count"] >= 600
    assert {"gateway", "queue", "inventory", "orders", "notifier"} <= figures["cpu_s"].keys()
    assert 0 < figures["cpu_s_total"] < 600
    assert 0 < figures["sold_out_s"] <= figures["seconds"] + 1
    ET.fromstring(ended.picture())
