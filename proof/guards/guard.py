"""A guard: product code that keeps one promise, how it is taken out, and the test that turns red without it."""

from dataclasses import dataclass

AREAS = ("gateway", "queue", "inventory", "orders", "notifier", "shared", "onsale", "features", "web")


@dataclass(frozen=True)
class Guard:
    """`keeps`: the promise, in the user's words. `old` occurs once in the file `path`; with `new` in its place the
    guard is out and everything else works as before. `test` is the name of the cheapest test that fails then. It is
    found wherever it lies, so moving it changes nothing here; where two tests share a name, the end of the file's path
    stands before it (`api/test_forms.py::test_…`).
    """

    keeps: str
    path: str
    old: str
    new: str
    test: str

    @property
    def area(self) -> str:
        """The service, or what it is instead of one: `shared`, `onsale`, `features`, `web`."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "services" else parts[0]
