"""Reads a CSV file as a spreadsheet does: by its byte order mark."""

import codecs
import csv
import io


def csv_rows(content: bytes) -> list[dict[str, str]]:
    """The rows of a CSV file, which must begin with a byte order mark."""
    assert content.startswith(codecs.BOM_UTF8), "without the mark, Excel takes UTF-8 for another encoding"
    assert content.count(codecs.BOM_UTF8) == 1
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
