"""Reads and writes event files (YAML). An error names the file, the line and the field."""

from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from onsale.errors import OperatorError
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.picture_files import PICTURE_MAX_BYTES, picture_file
from shared.web.fields import refusal

FILE_MAX_BYTES = 4 * 1024 * 1024
UNION_TAGS = {"seated", "ga"}  # pydantic adds the kind of section that it tried to the location


class BadEventFile(OperatorError):
    """The event file cannot be used; the message names file, line and field."""


def read(path: Path) -> EventFile:
    """The event that the file describes. Raises `BadEventFile`."""
    try:
        if path.stat().st_size > FILE_MAX_BYTES:
            raise BadEventFile(f"{path}: larger than {FILE_MAX_BYTES // 1024 // 1024} MiB")
        text = path.read_text()
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except OSError as unreadable:
        raise BadEventFile(f"{path}: {unreadable.strerror}") from unreadable
    except yaml.YAMLError as broken:
        mark = getattr(broken, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise BadEventFile(f"{path}{line}: not YAML: {getattr(broken, 'problem', None) or broken}") from broken
    except UnicodeDecodeError as broken:
        raise BadEventFile(f"{path}: not UTF-8 text") from broken
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as broken:  # of YAML's own types
        raise BadEventFile(f"{path}: a value cannot be read: {broken}") from broken
    try:
        return EventFile.model_validate(document)
    except ValidationError as refused:
        raise BadEventFile(_explain(path, node, refused)) from refused


def pictures(path: Path, event: EventFile) -> dict[str, bytes]:
    """The pictures that the event's brand names, which lie beside the file. Raises `BadEventFile`."""
    return {name: _picture(path, name) for name in (event.brand.files if event.brand else ())}


def _picture(path: Path, name: str) -> bytes:
    beside = path.parent / name
    try:
        if beside.resolve().parent != path.parent.resolve():
            raise BadEventFile(f"{path}: brand: {name} is a link to another folder")
        if beside.stat().st_size > PICTURE_MAX_BYTES:
            raise BadEventFile(f"{beside}: a picture has at most {PICTURE_MAX_BYTES // 1024} KiB")
        content = beside.read_bytes()
        picture_file(content)
    except OSError as unreadable:
        raise BadEventFile(f"{beside}: {unreadable.strerror}") from unreadable
    except ValueError as wrong:
        raise BadEventFile(f"{beside}: {wrong}") from wrong
    return content


def write(event: EventFile) -> str:
    """The event as the text of an event file, which `read` reads as the same event."""
    document = event.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _explain(path: Path, node: yaml.Node | None, refused: ValidationError) -> str:
    lines = []
    for error in refused.errors()[:10]:
        location = [part for part in error["loc"] if part not in UNION_TAGS]
        field = ".".join(str(part) for part in location) or "(the whole file)"
        lines.append(f"{path}:{_line(node, location)}: {field}: {refusal(error['msg'])}")
    return "\n".join(lines)


def _line(node: yaml.Node | None, location: Sequence[str | int]) -> int:
    """The line of the deepest part of the location that the file has."""
    line = 1
    for part in location:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            child = next((value for key, value in node.value if key.value == part), None)
            line = next((key.start_mark.line + 1 for key, _ in node.value if key.value == part), line)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = node.value[part]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
