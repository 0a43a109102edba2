"""The brand of an event's seller, as an event file has it: name, logo, colours, font, links, a picture of the event;
and what a picture file may be.

Colours that could not be read are refused. Every value that reaches the style sheet is a colour of six digits or a name
from a list, so no value can end a declaration. A picture is PNG, JPEG, WebP, AVIF or SVG by its content, not by its
name, small and of a known size. The type is what browsers are told, and they are told not to guess: a file that is also
a page or a script is shown as a picture or not at all.
"""

import colorsys
import hashlib
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator

from shared.contracts.fields import Body, PlainText

TEXT_MIN = 4.5
_STEPS = 40
PICTURE_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}(\.[A-Za-z0-9_-]{1,16}){0,2}\.(png|jpg|jpeg|webp|avif|svg)"
Colour = Annotated[str, StringConstraints(pattern=r"^#[0-9A-Fa-f]{6}$")]
PictureName = Annotated[str, StringConstraints(pattern=f"^{PICTURE_NAME}$", max_length=64)]
HttpsUrl = Annotated[str, StringConstraints(pattern=r"^https://[^\s\"'<>\\^`{|}\x00-\x20\x7f]+$", max_length=500)]
FontStack = Literal["standard", "humanist", "geometric", "industrial", "classical", "slab", "rounded"]

FONT_STACKS: dict[FontStack, str | None] = {
    "standard": None,
    "humanist": 'Seravek, "Gill Sans Nova", Ubuntu, Calibri, "DejaVu Sans", source-sans-pro, sans-serif',
    "geometric": 'Avenir, Montserrat, Corbel, "URW Gothic", source-sans-pro, sans-serif',
    "industrial": 'Bahnschrift, "DIN Alternate", "Franklin Gothic Medium", "Nimbus Sans Narrow", sans-serif',
    "classical": 'Optima, Candara, "Noto Sans", source-sans-pro, sans-serif',
    "slab": 'Rockwell, "Rockwell Nova", "Roboto Slab", "DejaVu Serif", "Sitka Small", serif',
    "rounded": 'ui-rounded, "Hiragino Maru Gothic ProN", Quicksand, Comfortaa, "Arial Rounded MT Bold", sans-serif',
}  # fmt: skip


class Shade(NamedTuple):
    """A colour of the pages, and what it is called in a message."""

    colour: str
    name: str


# The pages' own colours, as `web/fans/styles.css` has them; a test compares.
CARD, PAPER, NOTICE = Shade("#ffffff", "a card"), Shade("#f6f5f1", "the background"), Shade("#fdf3df", "a notice")
DARK_CARD, DARK_PAPER, DARK_NOTICE = (
    Shade("#1b1c24", "a card in the dark"), Shade("#111218", "the background in the dark"),
    Shade("#352a17", "a notice in the dark"),
)  # fmt: skip
TEXTS = ("#1a1b22", "#5a5c68", "#17703f", "#8a5200", "#a8262c")
DARK_TEXTS = ("#eeeef3", "#a9abb9", "#6fd49a", "#f0bd68", "#ff9b97")
DARK_ON_ACCENT = "#15152b"
TINT = 0.09  # of the accent, behind a button under the pointer


class BrandStyle(Body):
    """Colours and font of the pages. `background` is behind the cards."""

    accent: Colour | None = Field(None, description="Buttons and links, with white text on it.")
    accent_dark: Colour | None = Field(None, description="In dark mode. Default: accent, as light as it has to be.")
    background: Colour | None = None
    background_dark: Colour | None = None
    font_stack: FontStack = Field("standard", description="Fonts that devices have; nothing is loaded.")

    @model_validator(mode="after")
    def _readable(self) -> Self:
        for name, shades in (("accent", self._shades()), ("accent_dark", self._dark_shades())):
            if (accent := getattr(self, name)) is not None:
                _require_readable(name, accent, _tinted(accent, shades))
        for name, texts in (("background", TEXTS), ("background_dark", DARK_TEXTS)):
            if (paper := getattr(self, name)) is not None:
                _require_readable(name, paper, [Shade(text, "text on it") for text in texts])
        if self.accent_dark is not None and self.accent is None:
            raise ValueError("accent_dark needs accent")
        return self

    @property
    def own_accents(self) -> tuple[str, str] | None:
        """The accents in light and in dark mode."""
        if self.accent is None:
            return None
        return self.accent, self.accent_dark or lightened(self.accent, self._is_readable_in_the_dark)

    def stylesheet(self) -> str:
        """What goes after the pages' own style sheet; empty if nothing of it is branded."""
        light = _variables(accent=self.accent, paper=self.background)
        dark = _variables(paper=self.background_dark)
        if self.own_accents:
            dark += _variables(accent=self.own_accents[1], on_accent=DARK_ON_ACCENT)
            light += _variables(on_accent="#ffffff")
        fonts = FONT_STACKS[self.font_stack]
        light += f"--sans:{fonts};--serif:{fonts};" if fonts else ""
        rules = f":root{{{light}}}" if light else ""
        rules += f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}" if dark else ""
        if self.accent:
            near, far = mix(self.accent, "#000000", 0.75), mix(self.accent, "#000000", 0.4)
            rules += f".poster{{background:linear-gradient(155deg,{near},{far})}}"
        return rules

    def style_hash(self) -> str | None:
        """Names the style sheet; None if there is nothing in it."""
        style = self.stylesheet()
        return hashlib.blake2b(style.encode(), digest_size=8).hexdigest() if style else None

    def _is_readable_in_the_dark(self, accent: str) -> bool:
        return least(accent, _tinted(accent, self._dark_shades()))[0] >= TEXT_MIN

    def _shades(self) -> list[Shade]:
        return [CARD, NOTICE, Shade(self.background or PAPER.colour, PAPER.name)]

    def _dark_shades(self) -> list[Shade]:
        paper = Shade(self.background_dark or DARK_PAPER.colour, DARK_PAPER.name)
        return [DARK_CARD, DARK_NOTICE, paper, Shade(DARK_ON_ACCENT, "the text of a button in the dark")]


class EventPicture(Body):
    """A picture of the event, and what it shows in words, for those who do not see it."""

    file: PictureName
    alt: PlainText


class Brand(BrandStyle):
    """The seller. Files lie beside the event file: `onsale events apply` uploads them."""

    name: PlainText | None = Field(None, description="The seller's name, instead of Onsale.")
    logo: PictureName | None = None
    picture: EventPicture | None = None
    help_url: HttpsUrl | None = None
    terms_url: HttpsUrl | None = None
    imprint_url: HttpsUrl | None = None
    privacy_url: HttpsUrl | None = None

    @model_validator(mode="after")
    def _logo_has_a_name(self) -> Self:
        if self.logo is not None and self.name is None:
            raise ValueError("logo needs name, which is read out instead of it")
        return self

    @property
    def files(self) -> list[str]:
        """The names of its pictures, each once."""
        return list(dict.fromkeys(name for name in (self.logo, self.picture and self.picture.file) if name))


def _tinted(accent: str, shades: list[Shade]) -> list[Shade]:
    """The shades, and the tint of a button on the first, which is a card."""
    return [*shades, Shade(mix(accent, shades[0].colour, TINT), f"a button on {shades[0].name}")]


def _require_readable(field: str, colour: str, shades: list[Shade]) -> None:
    ratio, shade = least(colour, shades)
    if ratio < TEXT_MIN:
        raise ValueError(
            f"{field}: the contrast of {colour} with {shade.name} ({shade.colour}) is {ratio:.2f}:1, and text needs "
            f"{TEXT_MIN}:1"
        )


def _variables(**colours: str | None) -> str:
    return "".join(f"--{name.replace('_', '-')}:{colour};" for name, colour in colours.items() if colour)


# -- colours -----------------------------------------------------------------------------------------------------------
# `#rrggbb`: contrast by WCAG 2.2, mixtures as CSS makes them in sRGB, and the nearest that is readable.


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


# -- picture files -----------------------------------------------------------------------------------------------------

PICTURE_MAX_BYTES = 256 * 1024
SIDE_MAX = 8_192
EXTENSIONS = {
    "image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/avif": "avif", "image/svg+xml": "svg",
}  # fmt: skip
SVG_ROOT = "{http://www.w3.org/2000/svg}svg"
_frame_markers = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_length = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)(?:px)?\s*")


class PictureFile(NamedTuple):
    """The type of a picture, its size in pixels, and a digest of its content."""

    media_type: str
    width: int
    height: int
    digest: str

    @property
    def file(self) -> str:
        """Its name in addresses."""
        return f"{self.digest}.{EXTENSIONS[self.media_type]}"


class PictureStored(BaseModel):
    """A picture of an event as it is stored, and whether that changed anything."""

    event_id: str
    name: str
    changed: bool
    media_type: str
    width: int
    height: int
    digest: str


def picture_file(content: bytes) -> PictureFile:
    """Raises `ValueError`, which says what is wrong with the file."""
    if len(content) > PICTURE_MAX_BYTES:
        raise ValueError(f"a picture has at most {PICTURE_MAX_BYTES // 1024} KiB, and this one {len(content) // 1024}")
    try:
        media_type, (width, height) = _inspect(content)
    except (struct.error, IndexError):
        raise ValueError("the file ends too early") from None
    if not (1 <= width <= SIDE_MAX and 1 <= height <= SIDE_MAX):
        raise ValueError(f"each side of a picture has 1 to {SIDE_MAX} pixels, and this one is {width} by {height}")
    return PictureFile(media_type, width, height, hashlib.blake2b(content, digest_size=12).hexdigest())


def _inspect(content: bytes) -> tuple[str, tuple[int, int]]:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", struct.unpack(">II", content[16:24])
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", _jpeg_size(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp", _webp_size(content)
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif", _avif_size(content)
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return "image/svg+xml", _svg_size(content)
    raise ValueError("not a picture: PNG, JPEG, WebP, AVIF and SVG are known")


def _jpeg_size(content: bytes) -> tuple[int, int]:
    at = 2
    while content[at] == 0xFF:
        marker, (length,) = content[at + 1], struct.unpack(">H", content[at + 2 : at + 4])
        if marker in _frame_markers:
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        at += 2 + length
    raise ValueError("this JPEG has no size")


def _webp_size(content: bytes) -> tuple[int, int]:
    kind, data = content[12:16], content[20:30]
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[6:10])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack("<I", data[1:5])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(data[4:7], "little") + 1, int.from_bytes(data[7:10], "little") + 1
    raise ValueError("this WebP has no size")


def _avif_size(content: bytes) -> tuple[int, int]:
    """The largest of its images: the others are tiles and previews."""
    sizes = [struct.unpack(">II", content[at.end() + 4 : at.end() + 12]) for at in re.finditer(b"ispe", content)]
    if not sizes:
        raise ValueError("this AVIF has no size")
    return max(sizes)


def _svg_size(content: bytes) -> tuple[int, int]:
    if b"<!DOCTYPE" in content.upper() or b"<!ENTITY" in content.upper():
        raise ValueError("an SVG must not declare a document type")
    try:
        root = ET.fromstring(content)  # noqa: S314 - without a document type nothing expands
    except (ET.ParseError, LookupError, ValueError) as broken:
        raise ValueError(f"not XML: {broken}") from None
    if root.tag != SVG_ROOT:
        raise ValueError("an XML file, but not an SVG")
    sides = [_length.fullmatch(root.get(side, "")) for side in ("width", "height")]
    if all(sides):
        width, height = (float(side[1]) for side in sides if side)
    else:
        box = re.split(r"[\s,]+", root.get("viewBox", "").strip())
        try:
            width, height = float(box[2]), float(box[3])
        except (ValueError, IndexError):
            raise ValueError("an SVG needs width and height in pixels, or a viewBox") from None
    if not (0 < width < SIDE_MAX * 100 and 0 < height < SIDE_MAX * 100):
        raise ValueError("an SVG needs a size")
    return max(1, round(width)), max(1, round(height))
