"""The brand of an event file: unreadable colours are refused with their ratio, and no brand breaks a style sheet."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from features.hall import brand
from features.hall.brand import Brand, BrandStyle, FontStack, contrast, mix
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.properties.examples import bounded
from tests.support.running.suite import problem

STYLES = Path(__file__).parents[3] / "web/fans/styles.css"
COLOUR, FONTS = "#[0-9A-Fa-f]{6}", '[A-Za-z0-9", -]+'
VARIABLES = rf"(?:--(?:accent|on-accent|paper):{COLOUR};)*(?:--(?:sans|serif):{FONTS};)*"
SHEET = re.compile(
    rf"(?::root\{{{VARIABLES}\}})?(?:@media\(prefers-color-scheme:dark\)\{{:root\{{{VARIABLES}\}}\}})?"
    rf"(?:\.poster\{{background:linear-gradient\(155deg,{COLOUR},{COLOUR}\)\}})?"
)
SNIPPETS = ["}", "{", ";", "/*", "*/", "url(", "</style>", '"', "'", "\\", "\n", "#", "@import ", "red", "\x00", "："]
TEXTS = st.text(max_size=12) | st.lists(st.sampled_from(SNIPPETS), max_size=4).map("".join)
COLOURS = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")
VALUES = st.none() | COLOURS | st.tuples(COLOURS, TEXTS).map("".join) | TEXTS
FIELDS = ("accent", "accent_dark", "background", "background_dark")


@given(
    colours=st.fixed_dictionaries(dict.fromkeys(FIELDS, VALUES)),
    fonts=st.sampled_from(get_args(FontStack)) | TEXTS,
)
@bounded(examples=60, steps=1)
def test_any_accepted_brand_makes_a_style_sheet_of_known_declarations(colours: dict[str, Any], fonts: str) -> None:
    try:
        style = BrandStyle(**colours, font_stack=fonts)
    except ValidationError:
        return
    assert SHEET.fullmatch(style.stylesheet())


@given(accent=COLOURS)
@bounded(examples=60, steps=1)
def test_an_accepted_accent_is_readable_wherever_the_pages_use_it(accent: str) -> None:
    try:
        light, dark = BrandStyle(accent=accent).own_accents or ("", "")
    except ValidationError:
        return
    assert min(contrast(light, behind) for behind in ("#ffffff", "#f6f5f1", "#fdf3df")) >= 4.5
    assert min(contrast(dark, behind) for behind in ("#1b1c24", "#111218", "#352a17", "#15152b")) >= 4.5
    near = mix(accent, "#000000", 0.75)
    assert contrast(mix("#ffffff", near, 0.88), near) >= 4.5, "the small text of a poster"


REFUSED = {
    "accent": ({"accent": "#ff6600"}, "contrast of #ff6600 with a button on a card (#fff1e8) is 2.66:1"),
    "accent_dark": ({"accent": "#0b5d52", "accent_dark": "#0b5d52"}, "accent_dark: the contrast of #0b5d52"),
    "background": ({"background": "#888888"}, "background: the contrast of #888888 with text on it"),
    "background_dark": ({"background_dark": "#f6f5f1"}, "background_dark: the contrast of #f6f5f1"),
    "accent on its background": (
        {"accent": "#696969", "background": "#e0e0e0"},
        "with the background (#e0e0e0) is 4.16:1, and text needs 4.5:1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_colour_that_nobody_could_read_is_refused_with_its_ratio(inventory: Inventory, case: str) -> None:
    fields, words = REFUSED[case]
    refused = await inventory.put(event_file() | {"brand": fields})
    assert problem(refused) == (422, "invalid-request")
    assert words in str(refused.json())


@pytest.mark.parametrize("fields", [
    {"help_url": "javascript:alert(1)"}, {"help_url": "http://seller.example/"}, {"terms_url": "https://a.example/'"},
    {"logo": "../logo.svg", "name": "x"}, {"logo": "a/logo.svg", "name": "x"}, {"logo": "logo.svg"},
    {"font_stack": "Comic Sans"}, {"accent": "red"}, {"accent_dark": "#ffffff"}, {"colour": "#ffffff"},
    {"picture": {"file": "hall.png", "alt": ""}}, {"picture": {"file": "hall.exe", "alt": "x"}},
])  # fmt: skip
def test_what_a_brand_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Brand.model_validate(fields)


def test_the_colours_that_are_checked_against_are_those_of_the_pages() -> None:
    light, dark = (
        {name: value.strip() for name, value in re.findall(r"--([a-z-]+):\s*([^;]+);", block)}
        for block in re.findall(r":root \{([^}]*)\}", STYLES.read_text())[:2]
    )
    for named, shades, texts in (
        (light, (brand.CARD, brand.PAPER, brand.NOTICE), brand.TEXTS),
        (dark, (brand.DARK_CARD, brand.DARK_PAPER, brand.DARK_NOTICE), brand.DARK_TEXTS),
    ):
        assert [shade.colour for shade in shades] == [named[name] for name in ("card", "paper", "warn-paper")]
        assert list(texts) == [named[name] for name in ("ink", "soft", "good", "warn", "bad")]
    assert dark["on-accent"] == brand.DARK_ON_ACCENT


async def test_the_style_sheet_is_named_by_its_hash(inventory: Inventory) -> None:
    file = event_file() | {"brand": {"accent": "#0b5d52", "background": "#f2f7f5", "font_stack": "humanist"}}
    assert (await inventory.put(file)).is_success
    await inventory.state.catalogue.refresh()
    url = (await inventory.fans.get(f"/events/{EVENT}")).json()["brand"]["stylesheet"]
    named, unnamed = await inventory.fans.get(url), await inventory.fans.get(f"/e/{EVENT}/brand.css")
    assert named.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert unnamed.headers["cache-control"] == "public, no-cache"
    assert named.headers["content-type"].startswith("text/css")
    assert "--accent:#0b5d52" in named.text


async def test_a_brand_without_colours_has_no_style_sheet(inventory: Inventory) -> None:
    assert (await inventory.put(event_file() | {"brand": {"name": "Polar"}})).is_success
    await inventory.state.catalogue.refresh()
    assert (await inventory.fans.get(f"/events/{EVENT}")).json()["brand"]["stylesheet"] is None
    assert problem(await inventory.fans.get(f"/e/{EVENT}/brand.css")) == (404, "not-found")
