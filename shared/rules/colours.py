"""Colours as `#rrggbb`: contrast by WCAG 2.2, mixtures as CSS makes them in sRGB, and the nearest that is readable."""

import colorsys
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
    return _named(round(share * a + (1 - share) * b) for a, b in zip(_rgb(one), _rgb(other), strict=True))


def least(colour: str, shades: Iterable[Shade]) -> tuple[float, Shade]:
    """The lowest contrast, and the shade that it is with."""
    return min((contrast(colour, shade.colour), shade) for shade in shades)


def lightened(colour: str, is_readable: Callable[[str], bool]) -> str:
    """The colour of the same hue and saturation, as little lighter as makes it readable."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*(part / 255 for part in _rgb(colour)))
    for step in range(_STEPS):
        parts = colorsys.hls_to_rgb(hue, lightness + (1 - lightness) * step / _STEPS, saturation)
        if is_readable(lighter := _named(round(255 * part) for part in parts)):
            return lighter
    return "#ffffff"


def _named(parts: Iterable[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in parts)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
