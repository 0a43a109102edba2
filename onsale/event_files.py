"""Reads and writes event files (YAML). An error names the file, the line and the field, and says what to write."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from onsale.errors import OperatorError
from onsale.field_sentences import sentences
from onsale.strict_yaml import BadYaml, YamlText, read_yaml, write_yaml
from shared.contracts.event_file import EventFile

FILE_MAX_BYTES = 4 * 1024 * 1024


class BadEventFile(OperatorError):
    """The event file cannot be used; the message names file, line and field."""


def read(path: Path) -> EventFile:
    """The event that the file describes. Raises `BadEventFile`."""
    try:
        if path.stat().st_size > FILE_MAX_BYTES:
            raise BadEventFile(f"{path}: larger than {FILE_MAX_BYTES // 1024 // 1024} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as unreadable:
        raise BadEventFile(f"{path}: {unreadable.strerror}") from unreadable
    except UnicodeDecodeError as broken:
        raise BadEventFile(f"{path}: not UTF-8 text") from broken
    contents = parse(path, text)
    return validated(path, contents, contents.value)


def parse(path: Path, text: str) -> YamlText:
    """What the text of this file says. Raises `BadEventFile`."""
    try:
        return read_yaml(text)
    except BadYaml as refused:
        places = ((fault.line, ".".join(map(str, fault.path)), fault.says) for fault in refused.faults)
        raise BadEventFile(_lines(path, places)) from refused


def validated(path: Path, contents: YamlText, document: object) -> EventFile:
    """The event that the document describes, which is what the file says, or nearly so. Raises `BadEventFile`."""
    if not isinstance(document, dict):
        raise BadEventFile(f"{path}: not an event file: write its fields, each as name: value")
    try:
        return EventFile.model_validate(document)
    except ValidationError as refused:
        raise BadEventFile(_lines(path, sentences(contents, refused.errors()))) from refused


def _lines(path: Path, places: Iterable[tuple[int, str, str]]) -> str:
    return "\n".join(f"{path}:{line}: {field + ': ' if field else ''}{says}" for line, field, says in places)


def pictures(path: Path, event: EventFile) -> dict[str, bytes]:
    """The pictures that the event names, which lie beside the file. Raises `BadEventFile`."""
    return {name: _picture(path, name, event) for name in event.files}


def _picture(path: Path, name: str, event: EventFile) -> bytes:
    beside = path.parent / name
    try:
        if beside.resolve().parent != path.parent.resolve():
            raise BadEventFile(f"{path}: {name} is a link to another folder")
        if beside.stat().st_size > FILE_MAX_BYTES:
            raise BadEventFile(f"{beside}: larger than {FILE_MAX_BYTES // 1024 // 1024} MiB")
        content = beside.read_bytes()
        event.check_file(content)
    except OSError as unreadable:
        raise BadEventFile(f"{beside}: {unreadable.strerror}") from unreadable
    except ValueError as wrong:
        raise BadEventFile(f"{beside}: {wrong}") from wrong
    return content


def write(event: EventFile) -> str:
    """The event as the text of an event file, which `read` reads as the same event."""
    return write_yaml(event.model_dump(mode="json", exclude_none=True))
