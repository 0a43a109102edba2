"""Papers in every language: letters that the fonts have, Arabic joined and from right to left, any alphabet's names."""

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pypdf import PdfReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen.canvas import Canvas

from services.orders.tickets.lettering import HELVETICA, Letters
from services.orders.tickets.pdf import PdfRenderer, TicketPage
from shared.web.pages.words import FOLDER, ISOLATES, LANGUAGES, words

WIDTH = 100.0


class Drawn(Canvas):
    """Where each line was drawn, and in which font."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.drawn: list[tuple[str, float, str]] = []

    def setFont(self, name: str, *args: Any) -> None:  # noqa: N802
        self.font = name

    def drawString(self, x: float, y: float, text: str, *args: Any, **more: Any) -> None:  # noqa: N802
        self.drawn.append((text, x, self.font))

    def drawRightString(self, x: float, y: float, text: str, *args: Any, **more: Any) -> None:  # noqa: N802
        self.drawn.append((text, -x, self.font))


def drawn(language: str, text: str, *, bold: bool = False, at_end: bool = False, lines: int = 9) -> Any:
    """Each line with its left end or, negative, its right end; and its font."""
    canvas = Drawn()
    letters = Letters(words(language), custom_font=False)
    letters.draw(canvas, text, 10, 500, WIDTH, size=10, bold=bold, at_end=at_end, lines=lines)
    return canvas.drawn


def texts(language: str) -> Iterator[str]:
    for text in json.loads((FOLDER / f"{language}.json").read_text()).values():
        yield from text.values() if isinstance(text, dict) else [text]


def test_latin_texts_need_no_file_and_every_other_name_has_a_font():
    assert drawn("de", "Fußgängerübergänge – 5 €", bold=True)[0][2] == HELVETICA[1]
    assert drawn("en", "Łódź, Αθήνα, Київ")[0] == ("Łódź, Αθήνα, Київ", 10, "DejaVuSans")
    assert drawn("en", "Żółw", bold=True)[0][2] == "DejaVuSans-Bold"


def test_arabic_is_joined_and_begins_at_the_right():
    [(line, right, font)] = drawn("ar", "شكرا Ada 12")
    assert (right, font) == (-(10 + WIDTH), "DejaVuSans")
    assert line == "Ada 12 ﺍﺮﻜﺷ", "in the order of the page, the letters in the forms they have inside a word"
    assert drawn("ar", "12 €", at_end=True)[0][1] == 10
    assert drawn("en", "12 €", at_end=True)[0][1] == -(10 + WIDTH)
    assert drawn("en", "Ada شكرا!")[0] == ("Ada ﺍﺮﻜﺷ!", 10, "DejaVuSans"), "an Arabic name in an English text"


def test_a_long_line_breaks_between_words_and_reads_downwards():
    lines = [line for line, *_ in drawn("ar", "السبت الأحد الاثنين الثلاثاء الأربعاء الخميس")]
    assert len(lines) > 1
    assert lines[0].endswith(drawn("ar", "السبت")[0][0]), "the first words are on the first line, at its right"
    assert all(pdfmetrics.stringWidth(line, "DejaVuSans", 10) <= WIDTH for line in lines)
    assert len(drawn("ar", "السبت " * 40, lines=2)) == 2


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("bold", [False, True])
def test_the_fonts_have_every_letter_of_every_text(language, bold):
    missing = set()
    for text in texts(language):
        for line, _, font in drawn(language, text, bold=bold):
            assert not set(line) & set(ISOLATES)
            if font not in HELVETICA:
                paper: Any = pdfmetrics.getFont(font)
                glyphs = paper.face.charToGlyph
                missing |= {sign for sign in line if ord(sign) not in glyphs}
    assert not missing


async def test_a_ticket_in_arabic_has_its_texts():
    renderer = PdfRenderer(workers=1, waiting_max=1, font=None)
    page = TicketPage("ar", "Show", "when", "Łódź", "place", "REFERENCE123", "TICKET", "T1.code")
    try:
        async with asyncio.timeout(30):
            reader = PdfReader(io.BytesIO(await renderer.tickets([page])))
    finally:
        renderer.close()
    [ticket] = reader.pages
    text = ticket.extract_text()
    assert {"Łódź", "ﺍﻟﻄﻠﺐ", "REFERENCE123"} <= set(text.split())
    root: Any = reader.trailer["/Root"]
    assert root["/Lang"] == "ar"
