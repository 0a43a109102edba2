"""The brand of an event file: unreadable colours are refused with their ratio, and no brand breaks a style sheet.
Pictures of an event: types, limits, addresses that change with the content, and files that are something else; those
beside an event file are checked, uploaded when it is applied, and written beside it when it is read back.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from features.hall import brand
from features.hall.brand import PICTURE_MAX_BYTES, Brand, BrandStyle, FontStack, contrast, mix, picture_file
from onsale import event_files
from onsale.backup.command import _files
from onsale.event_files import BadEventFile
from tests.inventory.conftest import ADMIN_KEY, EVENT, OPERATOR_KEY, Inventory, event_file
from tests.properties.examples import bounded
from tests.support.browser import AVIF, JPEG, LIVELY_SVG, PAGE, PNG, SVG, WEBP, picture, pictures_of, write_event
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


PATH = f"/admin/inventory/events/{EVENT}/pictures"
TYPES = {"png": PNG, "jpeg": JPEG, "webp": WEBP, "avif": AVIF, "svg+xml": SVG}
BRAND = {"name": "Polar", "logo": "logo.svg", "picture": {"file": "hall.png", "alt": "The hall, full"}}


async def upload(inventory: Inventory, name: str, content: bytes, **headers: str) -> Any:
    return await inventory.fans.put(f"{PATH}/{name}", content=content, headers=ADMIN_KEY | headers)


async def branded(inventory: Inventory, **pictures: bytes) -> dict[str, Any]:
    """The event's details after its brand was applied with a logo and a picture."""
    for name, content in {"logo.svg": SVG, "hall.png": PNG, **pictures}.items():
        assert (await upload(inventory, name, content)).is_success
    assert (await inventory.put(event_file() | {"brand": BRAND})).is_success
    await inventory.state.catalogue.refresh()
    details: dict[str, Any] = (await inventory.fans.get(f"/events/{EVENT}")).json()
    return details


@pytest.mark.parametrize("kind", TYPES)
def test_the_type_and_the_size_come_from_the_content(kind: str) -> None:
    found = picture_file(TYPES[kind])
    assert (found.media_type, found.width, found.height) == (f"image/{kind}", 40, 30)


@pytest.mark.parametrize("kind", TYPES)
def test_a_file_that_ends_too_early_is_refused_unless_its_size_is_known(kind: str) -> None:
    for length in range(len(TYPES[kind]) - 1):
        with suppress(ValueError):
            assert picture_file(TYPES[kind][:length]).width == 40


REFUSED_PICTURES = {
    "a page": (PAGE, "document type"),
    "text": (b"GIF89a = 1", "not a picture"),
    "nothing": (b"", "not a picture"),
    "an SVG with a document type": (b"<!DOCTYPE svg [<!ENTITY a 'b'>]>" + SVG, "document type"),
    "XML that is no SVG": (b"<html xmlns='http://www.w3.org/1999/xhtml'/>", "not an SVG"),
    "an SVG without a size": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "viewBox"),
    "a side of 8,193 pixels": (picture("PNG", (8_193, 1)), "8192"),
    "more than 256 KiB": (PNG + bytes(PICTURE_MAX_BYTES), "256 KiB"),
}


@pytest.mark.parametrize("case", REFUSED_PICTURES)
def test_what_is_no_picture_is_refused(case: str) -> None:
    content, words = REFUSED_PICTURES[case]
    with pytest.raises(ValueError, match=words):
        picture_file(content)


async def test_pictures_are_served_by_their_content_and_for_a_year(inventory: Inventory) -> None:
    details = await branded(inventory)
    logo, hall = details["brand"]["logo"], details["picture"]
    assert (logo["alt"], hall["alt"], hall["width"], hall["height"]) == ("Polar", "The hall, full", 40, 30)
    for shown, content, media_type in ((logo, SVG, "image/svg+xml"), (hall, PNG, "image/png")):
        answer = await inventory.fans.get(shown["url"])
        assert (answer.content, answer.headers["content-type"]) == (content, media_type)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await inventory.fans.get(shown["url"], headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    listed = (await inventory.fans.get("/events")).json()["events"]
    assert [each["picture"] for each in listed if each["event_id"] == EVENT] == [hall]


async def test_another_picture_of_the_same_name_has_another_address(inventory: Inventory) -> None:
    first = (await branded(inventory))["picture"]["url"]
    assert (await upload(inventory, "hall.png", JPEG)).json()["changed"] is True
    assert (await upload(inventory, "hall.png", JPEG)).json()["changed"] is False
    await inventory.state.catalogue.refresh()
    second = (await inventory.fans.get(f"/events/{EVENT}")).json()["picture"]["url"]
    assert second != first
    assert (await inventory.fans.get(second)).headers["content-type"] == "image/jpeg", "whatever its name is"
    assert problem(await inventory.fans.get(first)) == (404, "not-found")


@pytest.mark.parametrize("content", [PNG + PAGE, LIVELY_SVG], ids=["a picture and a page", "an SVG with a script"])
async def test_a_file_that_is_something_else_too_can_do_nothing(inventory: Inventory, content: bytes) -> None:
    url = (await branded(inventory, **{"hall.png": content}))["picture"]["url"]
    answer = await inventory.fans.get(url)
    assert answer.headers["content-type"].startswith("image/")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"


async def test_a_brand_names_only_pictures_that_were_uploaded(inventory: Inventory) -> None:
    await upload(inventory, "logo.svg", SVG)
    refused = await inventory.put(event_file() | {"brand": BRAND})
    assert problem(refused) == (422, "invalid-request")
    assert "hall.png was not uploaded" in refused.json()["detail"]
    path = f"/admin/inventory/events/{EVENT}?dry_run=true"
    dry = await inventory.fans.put(path, json=event_file() | {"brand": BRAND}, headers=ADMIN_KEY)
    assert dry.is_success, "a command uploads after the dry run"


async def test_pictures_that_no_file_names_any_more_are_deleted(inventory: Inventory) -> None:
    details = await branded(inventory)
    assert (await inventory.put(event_file() | {"brand": {"name": "Polar", "logo": "logo.svg"}})).is_success
    await inventory.state.catalogue.refresh()
    assert problem(await inventory.fans.get(details["picture"]["url"])) == (404, "not-found")
    assert (await inventory.fans.get(details["brand"]["logo"]["url"])).is_success
    assert problem(await inventory.fans.get(f"{PATH}/hall.png", headers=ADMIN_KEY)) == (404, "not-found")
    assert (await inventory.fans.get(f"{PATH}/logo.svg", headers=ADMIN_KEY)).content == SVG


async def test_an_event_has_at_most_eight_pictures(inventory: Inventory) -> None:
    for number in range(8):
        assert (await upload(inventory, f"p{number}.png", PNG)).is_success
    assert problem(await upload(inventory, "p8.png", PNG)) == (422, "invalid-request")
    assert (await upload(inventory, "p7.png", JPEG)).is_success


@pytest.mark.parametrize(
    "name", ["..%2Flogo.svg", "logo", "logo.html", ".svg", "a%00.svg", "a" * 61 + ".svg", "%2e%2e"]
)
async def test_a_picture_has_a_plain_name(inventory: Inventory, name: str) -> None:
    assert (await upload(inventory, name, SVG)).status_code in (404, 422)


async def test_only_an_admin_uploads(inventory: Inventory) -> None:
    for headers, status in ((OPERATOR_KEY, 403), ({}, 401)):
        answer = await inventory.fans.put(f"{PATH}/logo.svg", content=SVG, headers=headers)
        assert answer.status_code == status


async def test_an_upload_is_in_the_audit_log(inventory: Inventory) -> None:
    await branded(inventory)
    await upload(inventory, "logo.svg", LIVELY_SVG)
    changes = (await inventory.admin("GET", f"/events/{EVENT}/changes"))["changes"]
    assert changes[0]["action"] == "picture"
    assert changes[0]["after"]["picture"] == "logo.svg"


@pytest.mark.parametrize("name", [
    "../secret.png", "/etc/secret.png", "a/b.png", "..png", ".png", "secret", "a.png/..", "a\nb.png", "C:a.png",
    "..\\secret.png",
])  # fmt: skip
def test_a_picture_lies_beside_the_file(tmp_path: Path, name: str) -> None:
    path = write_event(tmp_path, "t-beside", {"name": "Polar", "logo": name})
    with pytest.raises(BadEventFile, match=r"brand\.logo"):
        event_files.read(path)


def test_a_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.svg").write_bytes(SVG)
    (tmp_path / "here").mkdir()
    path = write_event(tmp_path / "here", "t-link")
    (tmp_path / "here" / "logo.svg").unlink()
    (tmp_path / "here" / "logo.svg").symlink_to(tmp_path / "elsewhere" / "secret.svg")
    with pytest.raises(BadEventFile, match="a link to another folder"):
        pictures_of(path)


@pytest.mark.parametrize(("content", "words"), [
    (PAGE, "document type"), (b"secret=1", "not a picture"), (PNG + bytes(256 * 1024), "256 KiB"),
])  # fmt: skip
def test_what_is_no_picture_is_refused_before_anything_is_sent(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(BadEventFile, match=words):
        pictures_of(write_event(tmp_path, "t-no-picture", logo=content))


def test_a_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_event(tmp_path, "t-missing")
    (tmp_path / "hall.png").unlink()
    with pytest.raises(BadEventFile, match=r"hall\.png: No such file"):
        pictures_of(path)


def test_a_backup_takes_them_along(tmp_path: Path) -> None:
    path = write_event(tmp_path, "t-backup")
    files = _files(tmp_path, [path, path], {})
    assert files == {f"events/{name}": tmp_path / name for name in ("event.yaml", "logo.svg", "hall.png")}
