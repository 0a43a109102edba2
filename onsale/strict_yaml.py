"""Reads the YAML that people write, so that a file means one thing: what a reader of it would say it means.

YAML has forms that are read as something else than what stands there: `010` as 8, `12:30:00` as 45,000, `NO` as false,
`Night #1` as "Night", a key that is given twice as its last value. They are refused, each with its line and what to
write instead. A value without quotes is null, true, false, a number of digits, or else the text as written, such as a
time, or the words `on` and `off`. Anchors, merges and tags are refused, too: every value is written where it belongs.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

FAULTS_MAX = 10
DEPTH_MAX = 50
Path = tuple[str | int, ...]

_CONSTANTS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_YES_OR_NO = re.compile(r"yes|no|ON|On|OFF|Off|Yes|YES|No|NO")
_BASES = re.compile(r"[-+]?(?:0[0-9_]+(?:\.[0-9_]*)?|0[oxb][0-9a-f_]+|[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?)", re.I)
_SIXTIETHS = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_NO_NUMBER = re.compile(r"[-+]?\.inf|\.nan|[-+]?[0-9]{19,}", re.I)
_COMMENT = re.compile(r"([ \t]*)(#[^\n\r]*)")
_HINTS = (
    ("mapping values are not allowed", 'a text that contains ": " must stand in quotes'),
    ("cannot start any token", "a text that begins with such a character must stand in quotes, and lines are indented "
     "by blanks, never by tabs"),
    ("while scanning an alias", "a text that begins with * must stand in quotes"),
    ("while scanning an anchor", "a text that begins with & must stand in quotes"),
    ("undefined alias", "a text that begins with * must stand in quotes"),
    ("expected a single document", "a file is one document: leave out the line ---"),
)  # fmt: skip


class Fault(NamedTuple):
    """A place that cannot be read as it stands, and what to write."""

    line: int
    path: Path
    says: str


class BadYaml(ValueError):
    """The text means something else than it says, or nothing."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(f"line {fault.line}: {fault.says}" for fault in faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class YamlText:
    """What a file says, and where. `written` has each value without quotes as it stands there, by its path."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of the deepest part of this path that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> YamlText:
    """Raises `BadYaml`."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as broken:
        raise BadYaml([*_cut_texts(text), _broken(broken)][:FAULTS_MAX]) from broken
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as broken:  # of the parser itself
        raise BadYaml([Fault(1, (), f"it cannot be read: {broken}")]) from broken
    reader = _Reader(text)
    value = None if node is None else reader.value(node, ())
    if reader.faults:
        raise BadYaml(sorted(reader.faults)[:FAULTS_MAX])
    return YamlText(value, reader.lines, reader.written)


def _broken(broken: yaml.YAMLError) -> Fault:
    if isinstance(broken, yaml.reader.ReaderError):
        return Fault(1, (), f"it has a character that no text has, after {broken.position} others: remove it")
    mark = getattr(broken, "problem_mark", None)
    words = " ".join(str(part) for part in (getattr(broken, "context", None), getattr(broken, "problem", None)) if part)
    hint = next((hint for part, hint in _HINTS if part in words), None)
    reason = getattr(broken, "problem", None) or str(broken)
    return Fault(mark.line + 1 if mark else 1, (), f"not YAML: {reason}" + (f"; {hint}" if hint else ""))


class _Reader:
    """Walks through one document once, and collects what must be written otherwise."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.faults: list[Fault] = []
        self.lines: dict[Path, int] = {}
        self.written: dict[Path, str] = {}
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self._seen:
            return self._refuse(node, path, "it uses an anchor (*): write the value out where it belongs, or put the "
                                "text in quotes")  # fmt: skip
        self._seen.add(id(node))
        if len(path) > DEPTH_MAX:
            return self._refuse(node, path, f"it is more than {DEPTH_MAX} levels deep")
        if self._marked(node):
            return self._refuse(node, path, "a value begins with & or !, which have a meaning of their own: put the "
                                "text in quotes")  # fmt: skip
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, n)) for n, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _pairs(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        first: dict[str, int] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, path, "a list or a group of fields cannot be the name of a field")
                continue
            name, here = key.value, (*path, key.value)
            if key.style is None and name == "<<":
                self._refuse(key, path, "<< copies fields from elsewhere: write them out where they belong")
                continue
            if name in first:
                what = f"`{name}` stands here twice, first in line {first[name]}: only one of them can be meant"
                self._refuse(key, here, what)
                continue
            first[name] = self.lines[here] = line
            if self._marked(key):
                self._refuse(key, here, "the name of a field begins with & or !: put it in quotes")
            yield name, self.value(child, here)

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        text = str(node.value)
        if getattr(node, "style", None) is not None:
            return text
        self.written[path] = text
        if says := _misread(text):
            return self._refuse(node, path, says)
        value: Any
        cut: str | None
        if text in _CONSTANTS:
            value = _CONSTANTS[text]
            cut = None if text else _cut(self.text, node.end_mark.index, "")
        elif _WHOLE.fullmatch(text):
            value, cut = int(text), None
        elif _DECIMAL.fullmatch(text):
            value = float(text)
            cut = None if math.isfinite(value) else f"{text} is larger than any number that can be used here"
        else:
            value, cut = text, _cut(self.text, node.end_mark.index, text)
        return self._refuse(node, path, cut) if cut else value

    def _marked(self, node: yaml.Node) -> bool:
        """Whether an anchor or a tag stands before the node."""
        return self.text[node.start_mark.index : node.start_mark.index + 1] in ("&", "!")

    def _refuse(self, node: yaml.Node, path: Path, says: str) -> None:
        """Notes the fault; the place has no value."""
        self.faults.append(Fault(node.start_mark.line + 1, path, says))


def _cut(text: str, end: int, value: str) -> str | None:
    """What to write if the comment behind a value without quotes looks like a part of it: `Night #1`, `#ff0000`."""
    found = _COMMENT.match(text, end)
    if found is None or (found[2][1:2].strip() == "" and (not value or len(found[1]) > 1)):
        return None
    return (
        "everything from # on is a comment and would be lost. If it belongs to the text, put it in quotes: "
        f"{_quoted((value + found[0]).strip()[:80])}; a comment after a text begins with two blanks, # and a blank"
    )


def _cut_texts(text: str) -> Iterator[Fault]:
    """Comments that look like a part of a text, in a file that cannot be read, perhaps because of them."""
    with suppress(yaml.YAMLError):
        token: Any
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            is_text = isinstance(token, yaml.ScalarToken) and token.plain and not _DECIMAL.fullmatch(token.value)
            if is_text and (says := _cut(text, token.end_mark.index, token.value)):
                yield Fault(token.start_mark.line + 1, (), says)


def _misread(text: str) -> str | None:
    """What to write instead of a word or number that YAML's readers take for something else."""
    if _YES_OR_NO.fullmatch(text):
        return f"{text} is read as yes or no by many programs: write {_quoted(text)} for the text, or true or false"
    if _SIXTIETHS.fullmatch(text):
        return f"{text} is read as a number to the base of 60 by many programs: write {_quoted(text)}"
    if _BASES.fullmatch(text):
        digits = text.replace("_", "").lstrip("0") or "0"
        number = f", or {digits} for the number" if digits.isdecimal() else ""
        return f"{text} is read as another number by many programs: write {_quoted(text)} for the text{number}"
    if _NO_NUMBER.fullmatch(text):
        return f"{text[:40]} is not a number that can be used here: write {_quoted(text[:40])} for the text"
    return None


class _Writer(yaml.SafeDumper):
    """Puts a text in quotes if `read_yaml` would not read it as a text without them."""


_NOT_TEXTS = (_DECIMAL, _YES_OR_NO, _BASES, _SIXTIETHS, _NO_NUMBER)
_Writer.add_implicit_resolver("!", re.compile("|".join(f"(?:{each.pattern})$" for each in _NOT_TEXTS), re.I), None)


def write_yaml(document: Any, *, flow_style: bool | None = False, width: int = 120) -> str:
    """A document that `read_yaml` reads as the same."""
    return yaml.dump(
        document, Dumper=_Writer, sort_keys=False, allow_unicode=True, default_flow_style=flow_style, width=width
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
