"""Tests that take a guard out themselves, to show that it is needed, say so if it is not where they look."""


class NoSuchGuard(Exception):
    """The text that the test takes out is not in the script or statement."""


def without(source: str, guard: str, replacement: str = "") -> str:
    """The source with the guard taken out. Raises `NoSuchGuard`."""
    if guard not in source:
        raise NoSuchGuard(guard)
    return source.replace(guard, replacement)
