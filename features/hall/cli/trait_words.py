"""Which traits of places a plan's own words mean: a category "Rollstuhl", a mark `wheelchair`, a class `companion`.

Only words that mean one trait are taken. What may be a place for a wheelchair or one beside it is said to be unclear.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from shared.contracts.event_parts.price_types import Trait

TRAITS: tuple[Trait, ...] = get_args(Trait)
NAMES: dict[Trait, str] = {
    "wheelchair": "for wheelchairs", "companion": "for companions", "restricted_view": "with a restricted view",
    "easy_access": "without steps",
}  # fmt: skip
_PATTERNS: dict[Trait, str] = {
    "wheelchair": r"wheel[\s_-]?chair|rollstuhl|rollifahrer|fauteuils?[\s_-]roulant|\bPMR\b|\bUFR\b|"
    r"sillas?[\s_-]de[\s_-]ruedas|كرسي\s?متحرك|الكراسي\s?المتحركة",
    "companion": r"companion|\bcarers?\b|begleit|accompagna|acompañante|acompanante|مرافق",
    "restricted_view": r"(restricted|limited|obstructed|partial)[\s_-]*view|obstructed|"
    r"sicht[\s_-]?(behinder|einschränk|eingeschränk)|eingeschränkte[rn]?[\s_-]sicht|"
    r"(visibilité|vue)[\s_-](réduite|partielle|limitée)|(visibilidad|visión|vista)[\s_-](reducida|parcial|limitada)|"
    r"رؤية\s(محدودة|جزئية)",
    "easy_access": r"(easy|level|step[\s_-]?free)[\s_-]*access|step[\s_-]?free|no[\s_-]steps|accessible|"
    r"stufenlos|ohne[\s_-]stufen|barrierefrei|sans[\s_-]marches?|sin[\s_-](escalones|barreras)|"
    r"accesible|بدون\s(درج|سلالم)",
}
_WORDS = {trait: re.compile(words, re.I) for trait, words in _PATTERNS.items()}
_NOT = re.compile(r"\b(no|not|non|kein\w*|nicht|ohne|without|sans|sin)[\s_-]+(\w+[\s_-]+)?$", re.I)
_OR = re.compile(r"[&+/,;]|\b(and|or|with|und|oder|mit|bzw|et|ou|avec|y|o|con)\b|\sو", re.I)
_TRUE = {"true", "yes", "1", "y", "ja", "oui", "sí"}


def traits_in(text: str) -> set[Trait]:
    """The traits that a text means. A "wheelchair companion" is a companion, and what is unclear is neither."""
    found = {
        trait for trait, words in _WORDS.items() if any(_is_meant(text, at.start()) for at in words.finditer(text))
    }
    if "wheelchair" in found:
        found.discard("easy_access")
    if "companion" in found:
        found.discard("wheelchair")
    return found - {"wheelchair", "companion"} if is_unclear(text) else found


def _is_meant(text: str, start: int) -> bool:
    return _NOT.search(text, 0, start) is None


def is_unclear(text: str) -> bool:
    """Whether it may mean places for wheelchairs or those beside them."""
    both = _WORDS["wheelchair"].search(text) and _WORDS["companion"].search(text)
    return bool(both and _OR.search(text))


def marks(fields: Mapping[str, Any]) -> Iterator[tuple[str, set[Trait]]]:
    """The fields that mark a place, with the traits that they mean: `wheelchair: true`, `type: companion`."""
    for name, value in fields.items():
        if value is True or value == 1 or (isinstance(value, str) and value.strip().lower() in _TRUE):
            traits = traits_in(re.sub(r"[_-]", " ", name))
        else:
            traits = traits_in(value) if isinstance(value, str) else set()
        if traits:
            yield name, traits
