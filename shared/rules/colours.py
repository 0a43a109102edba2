"""Colours as `#rrggbb`: contrast by WCAG 2.2, mixtures as CSS makes them in sRGB, and the nearest that is readable."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

TEXT_MIN = 4.5
_STEPS = 40


class Shade(NamedTuple):
    """A colour of the pages, and what it is called in a message."""

    colour: str
    name: str


def luminance(colour: str) -> float:
    """The relative luminance: 0 for black, 1 for white."""
    parts = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (part / 255 for part in _rgb(colour))]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: str, other: str) -> float:
    """From 1 to 21, whichever is in front."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def mix(one: str, other: str, share: float) -> str:
    """`share` of the one, the rest of the other."""
    parts = [round(share * a + (1 - share) * b) for a, b in zip(_rgb(one), _rgb(other), strict=True)]
    return "#" + "".join(f"{part:02x}" for part in parts)


def least(colour: str, shades: Iterable[Shade]) -> tuple[float, Shade]:
    """The lowest contrast, and the shade that it is with."""
    return min((contrast(colour, shade.colour), shade) for shade in shades)


def lightened(colour: str, is_readable: Callable[[str], bool]) -> str:
    """The colour with as little white as makes it readable."""
    tried = (mix("#ffffff", colour, step / _STEPS) for step in range(_STEPS + 1))
    return next((each for each in tried if is_readable(each)), "#ffffff")


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
