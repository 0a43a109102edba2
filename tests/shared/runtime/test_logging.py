"""Log lines are JSON whose own fields cannot be overwritten; a line of a request says of which."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import logging
from shared.runtime.logging import get_logger, request_fields, write_json_lines
write_json_lines(logging.INFO)
log = get_logger("onsale.queue")
"""


def lines(code: str) -> list[dict]:
    """What a process that runs this code logs."""
    done = subprocess.run([sys.executable, "-c", CODE + code], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_field_does_not_overwrite_a_field_of_the_line() -> None:
    [line] = lines('log.warning("stock.changed", level="INFO", section_id="A", at=1)')
    assert (line["event"], line["level"], line["logger"]) == ("stock.changed", "WARNING", "onsale.queue")
    assert line["section_id"] == "A"
    assert line["at"] > 1


def test_numbers_as_keys_of_a_field_do_not_fail_who_logs() -> None:
    [line] = lines('log.info("heads", heads={0: 7, 1: 3})')
    assert line["heads"] == {"0": 7, "1": 3}


def test_a_line_of_a_request_has_its_id_and_that_of_its_event() -> None:
    code = (
        'request_fields.set({"request_id": "r1", "event_id": "arena"})\nlog.info("a")\nlog.info("b", event_id="other")'
    )
    first, second = lines(code)
    assert (first["request_id"], first["event_id"]) == ("r1", "arena")
    assert (second["request_id"], second["event_id"]) == ("r1", "other"), "what the line says itself is nearer"


def test_an_outage_is_one_short_field_and_a_bug_a_traceback() -> None:
    code = "for failure in (ConnectionRefusedError('no'), KeyError('x')):\n    try:\n        raise failure\n"
    outage, bug = lines(f"{code}    except Exception:\n        log.exception('loop.failed')")
    assert "ConnectionRefusedError" in outage["error"]
    assert "Traceback" in bug["exception"]
    for line, field in ((outage, "error"), (bug, "exception")):
        assert line["level"] == "ERROR"
        assert not {"error", "exception", "exc_info"} - {field} & line.keys()


def test_records_of_libraries_have_the_same_form_and_debug_is_left_out() -> None:
    code = 'logging.getLogger("uvicorn").warning("no %s", "more", extra={"port": 1})\nlog.debug("x")'
    code += '\nlogging.getLogger("y").debug("z")'
    [line] = lines(code)
    assert (line["event"], line["level"], line["logger"], line["port"]) == ("no more", "WARNING", "uvicorn", 1)


def test_until_it_is_configured_a_line_goes_to_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    from shared.runtime.logging import get_logger

    with caplog.at_level(logging.INFO):
        get_logger("onsale.test").info("a.name", seats=2)
    [record] = caplog.records
    assert (record.name, record.getMessage(), vars(record)["data"]) == ("onsale.test", "a.name", {"seats": 2})


def test_a_line_that_cannot_be_written_ends_nothing() -> None:
    """A background loop that logs why it failed, on a full disk, must not end by that."""
    code = CODE + 'log.error("loop.failed")\nlogging.getLogger("y").error("z")\nprint("went on")'
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.stdout == "went on\n"
