"""What packages of others import changes only on purpose: names and signatures are those of `extend.txt`.

To accept a change: `python -P -m tests.structure.test_extend`, and a line in CHANGELOG.md.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from onsale import extend
from onsale.extend import names

FILE = Path(__file__).with_name("extend.txt")
MODULE = re.compile(r"\b([a-z_]+\.)+(?=[A-Z])")


def shown(name: str, found: Any) -> Iterator[str]:
    """The lines of one name: a class with what it has, a function, or the alternatives of a type."""
    if inspect.isclass(found):
        bases = ", ".join(base.__name__ for base in found.__bases__ if base is not object)
        yield f"class {name}({bases})" if bases else f"class {name}"
        yield from (f"    {line}" for line in members(found))
    elif inspect.isfunction(found):
        yield from signature(name, found)
    else:
        kinds = get_args(found)[:1] if hasattr(found, "__metadata__") else get_args(found)
        yield f"{name} = {' | '.join(getattr(each, '__name__', repr(each)) for each in kinds)}"


def members(owner: type) -> Iterator[str]:
    fields = {name: kind for name, kind in inspect.get_annotations(owner).items() if name[0] != "_"}
    is_record = is_dataclass(owner) or hasattr(owner, "_fields")
    is_made = not is_record and not hasattr(owner, "_is_protocol")
    parameters = inspect.signature(owner).parameters if is_record else {}
    for name, kind in fields.items():
        left_out = parameters[name].default if is_record else inspect.Parameter.empty
        ending = "" if left_out is inspect.Parameter.empty else f" = {left_out!r}"
        yield f"{name}: {inspect.formatannotation(kind)}{ending}"
    for name, value in vars(owner).items():
        if name not in fields and (name[0] != "_" or (name == "__init__" and is_made)):
            yield from signature(name, value)


def signature(name: str, value: Any) -> Iterator[str]:
    value = getattr(value, "__func__", value)
    if isinstance(value, property):
        yield f"{name}: property"
    elif inspect.isfunction(value):
        kind = "async def" if inspect.iscoroutinefunction(value) else "def"
        yield f"{kind} {name}{inspect.signature(value)}"


def surface() -> str:
    lines = (line for name in sorted(names.__all__) for line in shown(name, getattr(names, name)))
    return "".join(f"{MODULE.sub('', line)}\n" for line in lines)


def test_what_packages_import_is_what_was_promised() -> None:
    assert surface() == FILE.read_text()


def test_every_name_is_promised_and_says_what_it_is() -> None:
    found = {name: value for name, value in vars(names).items() if name[0] != "_"}
    assert found.keys() == {*names.__all__}
    assert all(getattr(extend, name) is value for name, value in found.items())
    written = [value for value in found.values() if inspect.isclass(value) or inspect.isfunction(value)]
    assert [value.__name__ for value in written if not value.__doc__] == []


def test_no_name_loads_a_model_that_features_add_to() -> None:
    """Else a package that adds fields could not be imported: that happens while those models are made."""
    code = (
        "import sys; import onsale.extend.names;"
        "print([name for name in sys.modules if name.startswith(('shared.contracts.room', 'shared.contracts.event'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_name_that_is_not_promised_is_missing() -> None:
    with pytest.raises(AttributeError, match="FromTheFuture"):
        extend.FromTheFuture  # type: ignore[attr-defined]  # noqa: B018


if __name__ == "__main__":
    FILE.write_text(surface())
