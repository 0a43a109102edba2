"""What is wrong with a field of a file, in a sentence that says what to write. It is said without a pattern or the name
of a type, and about the value as it stands in the file.
"""

from collections.abc import Mapping
from typing import Any

from onsale.strict_yaml import YamlText
from shared.contracts.fields import WANTED

ERRORS_MAX = 10
TIME = "write a date and a time with its offset, such as 2027-03-05T20:30:00+01:00"
WHOLE_NUMBER = "write a whole number, without quotes and without decimals, such as 4200"
NUMBER = "write a number, such as 2.5"

_FIXED = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field here",
    "value_error": "{error}",
    "string_too_short": "write at least {min_length} characters",
    "string_too_long": "write at most {max_length} characters",
    "too_short": "write at least {min_length} of them",
    "too_long": "write at most {max_length} of them",
    "greater_than": "write more than {gt}",
    "greater_than_equal": "write {ge} or more",
    "less_than": "write less than {lt}",
    "less_than_equal": "write {le} or less",
    "multiple_of": "write a multiple of {multiple_of}",
    "literal_error": "write one of {expected}",
    "union_tag_invalid": "write one of {expected_tags}",
    "union_tag_not_found": "`kind` is missing: write seated or ga",
    "decimal_max_places": "write at most {decimal_places} decimals",
    "decimal_max_digits": "write at most {max_digits} digits",
    "decimal_whole_digits": "write at most {whole_digits} digits before the point",
    "finite_number": NUMBER,
    "timezone_aware": TIME,
    "timezone_naive": TIME,
}
_KINDS = (
    (("int_",), WHOLE_NUMBER),
    (("float_", "decimal_", "is_instance"), NUMBER),
    (("bool_",), "write true or false"),
    (("datetime_", "date_", "time_"), TIME),
    (("list_", "tuple_", "set_", "iterable_"), "write a list, such as [first, second]"),
    (("dict_", "model_", "mapping_", "dataclass_"), "write a group of fields, each as name: value"),
)


def sentences(text: YamlText, errors: list[Any]) -> list[tuple[int, str, str]]:
    """The errors of a validation: the line of each, its field, and what to write; one for each field, the first ten."""
    by_place: dict[tuple[str | int, ...], tuple[int, str, str]] = {}
    for error in errors:
        place = _place(text, error)
        field = ".".join(map(str, place)) or "(the whole file)"
        by_place.setdefault(place, (text.line(place), field, sentence(error, text.written.get(place))))
    return list(by_place.values())[:ERRORS_MAX]


def _place(text: YamlText, error: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Where in the file it is: without what a validation adds to paths, such as the kind of section that it tried."""
    place: tuple[str | int, ...] = ()
    *outer, last = error["loc"] or ("",)
    for part in (*outer, last):
        if (*place, part) in text.lines:
            place = (*place, part)
    missing = error["type"] == "missing" and place[-1:] != (last,)
    return (*place, last) if missing else place


def sentence(error: Mapping[str, Any], written: str | None) -> str:
    """What to write instead of a value, which stands in the file as `written` if it is without quotes."""
    kind, value = error["type"], error.get("input")
    if value is None and kind not in ("missing", "value_error"):
        return "it is empty: write a value, or leave out the field"
    if kind == "string_type":
        return _text_wanted(value, written)
    if kind == "string_pattern_mismatch":
        return f"write {WANTED.get(error['ctx']['pattern'], 'other characters')}"
    if fixed := _FIXED.get(kind):
        return fixed.format_map({name: str(one) for name, one in error.get("ctx", {}).items()})
    return next((says for starts, says in _KINDS if kind.startswith(starts)), "this value cannot be used here")


def _text_wanted(value: Any, written: str | None) -> str:
    if isinstance(value, list | dict):
        return "write one text, not a list or a group of fields"
    return f'{written} is not read as a text: put it in quotes, "{written}"' if written else "write a text"
