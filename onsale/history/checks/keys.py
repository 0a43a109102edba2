"""A repeated request, by its idempotency key, has the same answer."""

from onsale.history.checks.books import Books
from onsale.history.checks.check import Check, Line

IDENTITY = {"joined": "fan", "held": "reservation_id", "ordered": "reference", "payment_started": "reference"}


class Keys(Check):
    """What a request created is the same at every repetition; the other parts of the answer may go on."""

    TITLE = "a repeated key has the same answer"
    KINDS = frozenset(IDENTITY)

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str | None, str, str], tuple[int, str]] = {}

    def read(self, number: int, line: Line) -> None:
        what = line["what"]
        identity = line.get(IDENTITY[what])
        if identity is None or "key" not in line:
            return
        key = what, line.get("event_id"), line["key"], line["request"]
        known = self._known.setdefault(key, (number, identity))
        if known[0] != number:
            self.compared += 1
        if known[1] != identity:
            self.violated(f"one key was answered with {known[1]} and {identity}", known[0], number)

    async def compare(self, books: Books) -> None:
        """Everything was decided while reading."""
