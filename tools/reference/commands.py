"""Every command of the command line with its arguments and options, from typer."""

from collections.abc import Iterator
from typing import Any

from onsale.cli.app import commands as listed
from onsale.cli.app import loaded
from shared.features import CliCommand
from tools.reference.markdown import Section, code, codes, page

TEXT = """`onsale COMMAND --help` says the same, `onsale --version` which version it is. Commands that ask a suite
find it by `--url` (its address), else by `--data-dir` (the data directory of `onsale up`, `.onsale` by default), and
take an operator's key from `ONSALE_ADMIN_KEY`, else from there. The exit code is 0 when it was done, 1 when what was
checked does not hold, 2 when it could not be done."""
COLUMNS = ("argument or option", "default", "what it is")
OF_A_SUITE = {"url", "data_dir"}
EXAMPLE = "Example: "


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name; a group is not one."""
    for entry in _top():
        yield from _within(entry.name, loaded(entry))


def _top() -> list[CliCommand]:
    return [entry for entry in listed() if " " not in entry.name]


def _within(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
    for each in (inner or {}).values():
        yield from _within(f"{name} {each.name}", each)


def commands_page() -> str:
    """docs/reference/cli.md"""
    return page("Command line", TEXT, _sections())


def _sections() -> Iterator[Section]:
    panel = ""
    for entry in _top():
        if entry.panel != panel:
            panel = entry.panel
            yield Section(panel)
        for name, command in _within(entry.name, loaded(entry)):
            own = [each for each in command.params if each.name not in ("help", *OF_A_SUITE) or not _asks(command)]
            also = "Also `--url` and `--data-dir`." if _asks(command) else ""
            rows = [_row(each) for each in own if each.name != "help"]
            yield Section(f"onsale {name}", COLUMNS, rows, text=_help(command), after=also, level=3)


def _asks(command: Any) -> bool:
    """Whether it is for a suite that runs."""
    return {each.name for each in command.params} >= OF_A_SUITE


def _help(command: Any) -> str:
    """The paragraphs of its help; an example becomes code."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    return "\n\n".join(
        f"```sh\n{paragraph.removeprefix(EXAMPLE)}\n```" if paragraph.startswith(EXAMPLE) else paragraph
        for paragraph in paragraphs
    )


def _row(parameter: Any) -> tuple[str, ...]:
    default = "required" if parameter.required else _default(parameter.default)
    choices = [each for each in getattr(parameter.type, "choices", ()) if str(each) not in (parameter.help or "")]
    text = f"{parameter.help or ''} {f'One of {codes(choices)}.' if choices else ''}"
    return codes(_names(parameter)), default, text


def _names(parameter: Any) -> list[str]:
    """As it is typed: an argument, a flag with its opposite, or an option with its value."""
    if parameter.param_type_name == "argument":
        return [parameter.metavar or parameter.name.upper()]
    names = [*parameter.opts, *parameter.secondary_opts]
    value = parameter.metavar or parameter.type.name.removesuffix(" range").upper()
    return names if parameter.is_flag else [*names[:-1], f"{names[-1]} {value}"]


def _default(value: Any) -> str:
    shown = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    return code(value if hasattr(value, "joinpath") else shown)
