"""Event files as text: puts a map into one without touching anything else, or drafts a new one.

A draft leaves open what a plan cannot know: place, time and prices. It cannot be applied before a person fills them in.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from onsale.errors import OperatorError
from shared.contracts.event_file import EventFile
from shared.web.fields import refusal

_MAP = re.compile(r"^map:.*?(?=^[^\s]|\Z)", re.M | re.S)
_OPEN = {"venue": "-", "currency": "EUR", "starts_at": "2030-01-01T00:00:00Z"}
HEADER = "# Drafted from {source}. Fill in what is empty: venue, currency, starts_at, and the price of each section.\n"


def document_of(path: Path, text: str) -> dict[str, Any]:
    """The YAML of an event file. Raises `OperatorError`."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as broken:
        raise OperatorError(f"{path}: not YAML: {getattr(broken, 'problem', None) or broken}") from broken
    if not isinstance(document, dict) or not isinstance(document.get("sections"), list):
        raise OperatorError(f"{path}: not an event file: it has no sections")
    return document


def event_of(path: Path, document: Mapping[str, Any]) -> EventFile:
    """The event, with what a draft leaves open filled in somehow. Raises `OperatorError`."""
    filled = {**_OPEN, **{name: value for name, value in document.items() if value is not None}}
    filled["sections"] = [
        {**section, "price_minor": section.get("price_minor") or 0} if isinstance(section, dict) else section
        for section in filled["sections"]
    ]
    try:
        return EventFile.model_validate(filled)
    except ValidationError as refused:
        error = refused.errors()[0]
        place = ".".join(map(str, error["loc"]))
        raise OperatorError(f"{path}: {place + ': ' if place else ''}{refusal(error['msg'])}") from refused


def with_map(text: str, hall_map: Mapping[str, Any]) -> str:
    """The text with this map; everything else stays, comments too."""
    return f"{_MAP.sub('', text).rstrip()}\n{_dumped({'map': hall_map})}"


def draft(source: str, event: Mapping[str, Any], hall_map: Mapping[str, Any]) -> str:
    """A new event file."""
    return HEADER.format(source=source) + _dumped(event) + _dumped({"map": hall_map})


def _dumped(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, default_flow_style=None, allow_unicode=True, width=200)
