"""A rendered page with slots: the page is rendered once for many, a fan's own part is put in for each.

So a fan's position never gets into a copy that others are sent, and costs no rendering.
"""

import re
from collections.abc import Mapping

_slot = re.compile("\x00([a-z_]+)\x00")


def slot(name: str) -> str:
    """A slot, in a template."""
    return f"\x00{name}\x00"


class Shell:
    """A page's text in pieces, every other one the name of a slot."""

    def __init__(self, text: str) -> None:
        self._pieces = _slot.split(text)

    def filled(self, values: Mapping[str, str]) -> str:
        """The page with these values, which are HTML, in its slots; a slot without one stays empty."""
        pieces = list(self._pieces)
        pieces[1::2] = [values.get(name, "") for name in pieces[1::2]]
        return "".join(pieces)


STEPS = ("loading", "lobby", "waiting")


def step_slots(step: str) -> dict[str, str]:
    """The slots that show one step of the event's page; sections of later steps belong to scripts and stay hidden."""
    return {"step": step, **{f"{name}_hidden": "" if name == step else "hidden" for name in STEPS}}
