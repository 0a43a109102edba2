"""Papers in every language: letters that the fonts have, Arabic joined and from right to left, any alphabet's names,
nothing outside its space.
"""

import asyncio
import io
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader
from reportlab.lib.pagesizes import A4, A6
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen.canvas import Canvas

from features.papers.orders.api import PapersSettings, check_seller
from features.papers.orders.lettering import (
    CUSTOM_FONT,
    HELVETICA,
    MISSING,
    SIZE_MIN,
    Letters,
    register_custom_font,
    unprintable,
)
from features.papers.orders.lettering import FOLDER as FONTS
from features.papers.orders.pdf import PdfRenderer, Receipt, TicketPage
from shared.words.words import FOLDER, ISOLATES, LANGUAGES, words
from tests.orders.shop import NAMES, WORD_OF_68

WIDTH = 100.0


@dataclass
class Drawn:
    """A part of a line: where it begins and ends, and in which font and size."""

    text: str
    x: float
    y: float
    font: str
    size: float

    @property
    def end(self) -> float:
        return float(self.x + pdfmetrics.stringWidth(self.text, self.font, self.size))


class RecordingCanvas(Canvas):
    """Knows what was drawn."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.drawn: list[Drawn] = []

    def setFont(self, name: str, size: float, *args: Any) -> None:  # noqa: N802
        self.font = name, size

    def drawString(self, x: float, y: float, text: str, *args: Any, **more: Any) -> None:  # noqa: N802
        self.drawn.append(Drawn(text, x, y, *self.font))


def drawn(
    language: str, text: str, *, bold: bool = False, at_end: bool = False, lines: int = 9, width: float = WIDTH
) -> list[Drawn]:
    canvas = RecordingCanvas()
    letters = Letters(words(language), custom_font=False)
    letters.draw(canvas, text, 10, 500, width, size=10, bold=bold, at_end=at_end, lines=lines)
    return canvas.drawn


def lines_of(parts: list[Drawn]) -> list[str]:
    lines: dict[float, str] = {}
    for part in parts:
        lines[part.y] = lines.get(part.y, "") + part.text
    return list(lines.values())


def texts(language: str) -> Iterator[str]:
    for text in json.loads((FOLDER / f"{language}.json").read_text()).values():
        yield from text.values() if isinstance(text, dict) else [text]


def test_latin_texts_need_no_file_and_every_other_name_has_a_font() -> None:
    assert drawn("de", "Fußgängerübergänge – 5 €", bold=True)[0].font == HELVETICA[1]
    [part] = drawn("en", "Łódź, Αθήνα, Київ")
    assert (part.text, part.x, part.font) == ("Łódź, Αθήνα, Київ", 10, "DejaVuSans"), "one font in a word"
    assert drawn("en", "Żółw", bold=True)[0].font == "DejaVuSans-Bold"
    parts = drawn("en", "Tokyo 東京 서울 กรุงเทพ", width=500)
    assert [part.font for part in parts if part.text.strip()] == [
        "Helvetica", "DroidSansFallbackFull", "NotoSansKR-Hangul", "NotoSansThai-Regular"
    ]  # fmt: skip
    assert all(before.end == pytest.approx(after.x) for before, after in pairwise(parts))


def test_arabic_is_joined_and_begins_at_the_right() -> None:
    [part] = drawn("ar", "شكرا Ada 12")
    assert part.end == pytest.approx(10 + WIDTH)
    assert part.font == "DejaVuSans"
    assert part.text == "Ada 12 ﺍﺮﻜﺷ", "in the order of the page, the letters in the forms they have inside a word"
    assert drawn("ar", "12 €", at_end=True)[0].x == 10
    assert drawn("en", "12 €", at_end=True)[0].end == pytest.approx(10 + WIDTH)
    assert drawn("en", "Ada شكرا!")[0].text == "Ada ﺍﺮﻜﺷ!", "an Arabic name in an English text"


def test_the_minus_of_an_arabic_amount_is_left_of_its_digits() -> None:
    [part] = drawn("ar", words("ar").money(-1260, "EUR"))
    assert "-12.60" in part.text


def test_a_long_line_breaks_between_words_and_reads_downwards() -> None:
    lines = lines_of(parts := drawn("ar", "السبت الأحد الاثنين الثلاثاء الأربعاء الخميس"))
    assert len(lines) > 1
    assert lines[0].endswith(lines_of(drawn("ar", "السبت"))[0]), "the first words are on the first line, at its right"
    assert all(part.x + 0.01 >= 10 for part in parts)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("bold", [False, pytest.param(True, marks=pytest.mark.proof)])
def test_the_fonts_have_every_letter_of_every_text(language: str, bold: bool) -> None:
    for text in texts(language):
        for part in drawn(language, text, bold=bold):
            assert not set(part.text) & {*ISOLATES, MISSING}
            if part.font not in HELVETICA:
                paper: Any = pdfmetrics.getFont(part.font)
                assert {sign for sign in part.text if ord(sign) not in paper.face.charToGlyph} == set()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("language", ["en", "ar"])
def test_every_script_that_papers_have_is_written_whole(language: str, name: str) -> None:
    assert unprintable([name], custom=False) == ""
    written = "".join(lines_of(drawn(language, name)))
    assert MISSING not in written
    if not any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in name):
        assert sorted(written.replace(" ", "")) == sorted(unicodedata.normalize("NFC", name).replace(" ", ""))


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("हिन्दी", "हिन्दी"), ("ខ្មែរ", "ខ្មែរ"), ("Zoë 🎉", "🎉"), ("👩‍🎤🏽", "👩🎤"), ("ߒߞߏ", "ߒߞߏ"), ("Night 7", ""),
        ("❤️", ""),
    ],
)  # fmt: skip
def test_letters_that_no_paper_shows_are_named(name: str, missing: str) -> None:
    found = unprintable([name, name], custom=False)
    assert (set(found), len(found)) == (set(missing), len(set(missing)))


def test_a_seller_that_no_receipt_shows_is_found() -> None:
    def found(seller: str) -> tuple[str, str]:
        [check] = check_seller(PapersSettings(seller=seller))
        return check.verdict, check.found

    assert found("臺北售票\nTaipei") == ("ok", "臺北售票")
    assert found("नई Ltd") == ("look", "receipts cannot show these letters of ORDERS_SELLER: ईन")


def test_a_letter_without_a_font_is_a_box_and_a_picture_is_left_out() -> None:
    assert lines_of(drawn("en", "Zoë 🎉 Party 👩‍🎤 Night")) == ["Zoë Party Night"]
    assert lines_of(drawn("en", "ខ 7")) == [f"{MISSING} 7"]


def test_a_font_of_the_operator_comes_first_and_ours_write_what_it_lacks() -> None:
    register_custom_font(FONTS / "NotoSansThai-Regular.ttf")
    canvas = RecordingCanvas()
    Letters(words("en"), custom_font=True).draw(canvas, "กรุงเทพ Łódź 東京", 10, 500, 500, size=10)
    assert [part.font for part in canvas.drawn if part.text.strip()] == [
        CUSTOM_FONT, "DejaVuSans", "DroidSansFallbackFull"
    ]  # fmt: skip
    assert unprintable(["กรุงเทพ Łódź 東京"], custom=True) == ""


def test_letters_that_were_typed_in_parts_are_put_together() -> None:
    assert lines_of(drawn("en", unicodedata.normalize("NFD", "서울 Zoë"))) == ["서울 Zoë"]


def test_a_word_longer_than_a_line_is_broken_and_chinese_breaks_between_letters() -> None:
    lines = lines_of(drawn("de", WORD_OF_68))
    assert ("".join(lines), len(lines) > 2) == (WORD_OF_68, True)
    lines = lines_of(drawn("en", "東京フィルハーモニー、交響楽団（第九）" * 2))
    assert not any(line[0] in "、）ー" or line[-1] == "（" for line in lines), "marks stay with their letters"
    assert len(lines_of(drawn("en", "Ein Jahr-2026/2027", width=60))) == 2


def test_what_is_too_long_is_written_smaller_and_ends_in_an_ellipsis_at_last() -> None:
    small = drawn("en", "word " * 30, lines=2)
    assert {part.size for part in small} < {6, 7, 8, 9}
    cut = drawn("en", "word " * 90, lines=2)
    assert {part.size for part in cut} == {SIZE_MIN}
    assert (lines_of(cut)[-1][-1], len(lines_of(cut))) == ("…", 3)


TYPED = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(sorted(NAMES.values()))


@settings(deadline=None, max_examples=60)
@given(TYPED, TYPED, st.integers(1, 12), st.sampled_from(["en", "ar"]), st.booleans(), st.booleans())
def test_no_text_leaves_its_space(name: str, other: str, times: int, language: str, bold: bool, at_end: bool) -> None:
    parts = drawn(language, (name + other) * times, bold=bold, at_end=at_end, lines=2)
    assert all(part.x + 0.01 >= 10 and part.end <= 10 + WIDTH + 0.01 for part in parts)
    assert all(500 - 2 * 10 * 1.25 <= part.y <= 500 for part in parts)


async def render(*pages: TicketPage) -> PdfReader:
    renderer = PdfRenderer(workers=1, waiting_max=1, font=None)
    try:
        async with asyncio.timeout(30):
            return PdfReader(io.BytesIO(await renderer.tickets(pages)))
    finally:
        renderer.close()


async def test_a_ticket_in_arabic_has_its_texts() -> None:
    reader = await render(TicketPage("ar", "Show", "when", "Łódź", "place", "REFERENCE123", "TICKET", "T1.code"))
    [ticket] = reader.pages
    text = ticket.extract_text()
    assert {"Łódź", "ﺍﻟﻄﻠﺐ", "REFERENCE123"} <= set(text.split())
    root: Any = reader.trailer["/Root"]
    assert root["/Lang"] == "ar"


async def test_names_of_every_script_and_length_stay_on_the_paper_and_off_the_code() -> None:
    long = [WORD_OF_68 * 2, "W" * 200, "東" * 200, "ก" * 200, "Block " + "X" * 190]
    names = [*NAMES.values(), *long]
    reader = await render(
        *(TicketPage("en", n, "when " * 20, n, n, "REFERENCE123", "TICKET", "T1.code", n[:100]) for n in names)
    )
    for name, page in zip(names, reader.pages, strict=True):
        places = positions(page)
        assert all(9 * mm - 1 <= x <= A6[0] - 9 * mm and 0 < y < A6[1] for x, y in places)
        between = [y for _, y in places if 19 * mm < y < 77 * mm]
        assert not between, f"{name} is drawn over the code"
    fonts = {font for page in reader.pages for font in page["/Resources"]["/Font"].values()}  # type: ignore[index]
    assert all("/FontFile2" in font.get_object().get("/FontDescriptor", {"/FontFile2": 0}) for font in fonts)


async def test_price_type_and_proof_of_every_length_stay_off_the_code() -> None:
    names = [*NAMES.values(), "W" * 200, WORD_OF_68 * 2, "東" * 200]
    pages = [
        TicketPage(
            "en", n, "when " * 20, n, n, "REFERENCE123", "TICKET", "T2.code", price_type=n[:60], proof=(n * 9)[:120]
        )
        for n in names
    ]
    for name, page in zip(names, (await render(*pages)).pages, strict=True):
        places = positions(page)
        assert all(9 * mm - 1 <= x <= A6[0] - 9 * mm and 0 < y < A6[1] for x, y in places)
        assert not [y for _, y in places if 19 * mm < y < 67 * mm], f"{name} is drawn over the code"


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_ticket_says_its_price_type_and_what_is_shown_at_the_door(language: str) -> None:
    usual = TicketPage(
        language, "Show", "when", "Hall", "Floor", "REFERENCE123", "TICKET", "T2.code", price_type="Adult"
    )
    child, adult = (await render(usual._replace(price_type="Child", proof="Card 7"), usual)).pages
    assert {"Child", "Card", "7"} <= set(child.extract_text().split())
    assert "Adult" in adult.extract_text()
    assert "Card" not in adult.extract_text()


async def test_a_long_receipt_goes_on_on_further_pages() -> None:
    names = [name for script, name in NAMES.items() if script not in ("Hebrew", "Arabic", "Persian")]  # read backwards
    names += [WORD_OF_68 * 2, "W" * 200]
    rows = [(name, "€1,234,567.00") for name in names * 4]
    receipt = Receipt(
        "en", "臺北售票\n" * 9, "W" * 200, "M" * 200, "REF", ("by " + "방탄 " * 60,), rows, rows[:3], rows[:2]
    )
    renderer = PdfRenderer(workers=1, waiting_max=1, font=None)
    try:
        reader = PdfReader(io.BytesIO(await renderer.receipt(receipt)))
    finally:
        renderer.close()
    assert len(reader.pages) > 1
    assert sum(page.extract_text().count("€1,234,567.00") for page in reader.pages) == len(rows) + 5
    for page in reader.pages:
        assert all(20 * mm - 1 <= x <= A4[0] - 20 * mm and 10 * mm < y < A4[1] for x, y in positions(page))


def positions(page: Any) -> list[tuple[float, float]]:
    """Where each text of the page begins."""
    found: list[tuple[float, float]] = []

    def visit(text: str, _: Any, matrix: list[float], *more: Any) -> None:
        if text.strip():
            found.append((matrix[4], matrix[5]))

    page.extract_text(visitor_text=visit)
    return found
