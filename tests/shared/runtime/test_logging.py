"""Log lines are JSON whose own fields cannot be overwritten."""

import json
import logging

from shared.runtime.logging import JsonLines, data


def test_a_data_field_does_not_overwrite_a_field_of_the_line() -> None:
    record = logging.LogRecord("onsale.queue", logging.WARNING, "", 0, "stock.changed", (), None)
    record.__dict__ |= data(event="arena-2026", level="INFO", section_id="A")
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["level"], line["logger"]) == ("stock.changed", "WARNING", "onsale.queue")
    assert line["section_id"] == "A"
