"""The fields of a pydantic model and of the models inside it, as sections of a page."""

import inspect
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel

from tools.reference.markdown import Section, code, codes, sentence

Model = type[BaseModel]
WORDS: dict[Any, str] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    Any: "anything",
    AwareDatetime: "RFC 3339 time",
}
COLUMNS = ("field", "type", "what it says")


def sections(models: dict[str, Model], *, level: int = 3) -> Iterator[Section]:
    """One section a model, under its heading; the models inside it follow once, under their names."""
    headings = {model: heading for heading, model in models.items()}
    for model in models.values():
        _add_inner(model, headings)
    for model, heading in headings.items():
        yield _section(heading, model, headings, level)


def _add_inner(model: Model, headings: dict[Model, str]) -> None:
    for part in (part for field in model.model_fields.values() for part in _models(field.annotation)):
        if part not in headings:
            headings[part] = part.__name__
            _add_inner(part, headings)


def _section(heading: str, model: Model, headings: Mapping[Model, str], level: int) -> Section:
    """The model's docstring and its fields."""
    rows = [
        (code(name), kind(field.annotation, headings), sentence(field.description or ""))
        for name, field in model.model_fields.items()
    ]
    columns = COLUMNS if any(text for *_, text in rows) else COLUMNS[:2]
    return Section(heading, columns, [row[: len(columns)] for row in rows], text=documented(model), level=level)


def documented(part: Any) -> str:
    """The docstring as paragraphs of one line each."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (inspect.getdoc(part) or "").split("\n\n"))


def kind(annotation: Any, headings: Mapping[Model, str]) -> str:
    """A type in the words of JSON; `?` may be null. A model is a link to its section."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind(inner[0], headings)
    words = (
        [kind(each, headings) for each in inner if each not in (NoneType, Ellipsis)]
        if origin not in (None, Literal)
        else []
    )
    if origin in (Union, UnionType):
        return " or ".join(words) + (" ?" if NoneType in inner else "")
    if origin is Literal:
        return codes(inner)
    if origin is dict:
        return f"object: {words[0]} → {words[1]}"
    if origin is not None:
        return f"list of {words[0]}" if Ellipsis in inner or len(words) == 1 else f"({', '.join(words)})"
    if annotation in headings:
        return f"[{annotation.__name__}](#{headings[annotation].strip('`').lower()})"
    return WORDS[annotation]


def _models(annotation: Any) -> Iterator[Model]:
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)
