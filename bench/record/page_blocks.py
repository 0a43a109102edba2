"""Generated blocks of documents: what stands between two comments is written by commands that the first one names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A block by its name, and the commands that write it."""

    name: str
    commands: str

    def replaced(self, text: str, content: str) -> str:
        """The document with this content in the block. Raises `ValueError` if the document has no such block."""
        before, _ = text.split(self._begin, 1)
        _, after = text.split(self._end, 1)
        return f"{before}{self._begin}\n{content.strip()}\n{self._end}{after}"

    @property
    def _begin(self) -> str:
        return f"<!-- {self.name}: written by {self.commands} -->"

    @property
    def _end(self) -> str:
        return f"<!-- end of {self.name} -->"
