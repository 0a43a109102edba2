"""A log line says what happened in its own words."""

import json
import logging

from shared.runtime.logging import JsonLines, data


def test_no_field_stands_in_for_the_lines_own() -> None:
    record = logging.LogRecord("onsale.queue", logging.WARNING, "", 0, "stock.changed", (), None)
    record.__dict__ |= data(event="arena-2026", level="INFO", section_id="A")
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["level"], line["logger"]) == ("stock.changed", "WARNING", "onsale.queue")
    assert line["section_id"] == "A"
