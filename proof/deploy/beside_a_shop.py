"""What a crowd did to the shop of docs/use/beside-a-shop.md when the test of that page last measured it."""

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from tests.support.programs import DOCS

PAGE, SAVED = DOCS / "use" / "beside-a-shop.md", Path(__file__).with_suffix(".json")
BEGIN, END = "<!-- figures: written by `make shop` -->\n", "<!-- end of figures -->"


@dataclass(frozen=True)
class Figures:
    """One run: the crowd, and what the shop's own access log and database say of it."""

    date: str
    shop: str
    fans: int
    seconds: int
    called: int
    reached: int
    overtaken: int
    bought: int
    holders_at_once: int
    max_active: int
    requests_to_the_shop: int
    requests_without_a_pass: int

    def table(self) -> str:
        rows = {
            "fans at the shop's address": f"{self.fans:,}",
            "sent to the waiting room, all of them": f"{self.fans:,}",
            "called, in the order in which they joined": f"{self.called} ({self.overtaken} overtaken)",
            "of these reached the shop": f"{self.reached}",
            "bought a ticket on its pages": f"{self.bought}",
            "most fans in the shop at once, of at most": f"{self.holders_at_once} of {self.max_active}",
            "requests that the shop had to answer": f"{self.requests_to_the_shop:,}",
            "of these to a protected page without a pass": f"{self.requests_without_a_pass}",
        }
        head = (
            f"Measured on {self.date} in {self.seconds} seconds by the test of this page, with {self.shop}, everything "
            "on\none machine with two cores. The last three rows come from the shop's own access log.\n\n"
            "| | |\n|---|---|\n"
        )
        return head + "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def page_with(figures: Figures, page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + figures.table() + END + rest.split(END)[1]


def save(figures: Figures) -> None:
    SAVED.write_bytes(orjson.dumps(asdict(figures), option=orjson.OPT_INDENT_2))
    PAGE.write_text(page_with(figures, PAGE.read_text()))


def saved() -> Figures:
    return Figures(**orjson.loads(SAVED.read_bytes()))
