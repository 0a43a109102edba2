"""The documents are correct: links and files exist, examples run, and figures agree with their sources."""

import html
import itertools
import re
from pathlib import Path

from bench.record import front
from onsale.cli.app import commands, loaded
from proof.drills import recoveries

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts)]

MAINTAINED = [path for path in DOCUMENTS if "decisions" not in path.parts and path.name != "CHANGELOG.md"]
README_LINES_MAX = 130


def test_every_relative_link_has_a_target() -> None:
    link, image = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)"), re.compile(r'<img src="([^"]+)"')
    for path in DOCUMENTS:
        for target in link.findall(path.read_text()) + image.findall(path.read_text()):
            assert (path.parent / target).exists(), f"{path}: {target}"


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


def test_every_anchor_of_a_link_is_a_heading() -> None:
    for path in DOCUMENTS:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text()):
            assert anchor in anchors((path.parent / target) if target else path), f"{path}: {target}#{anchor}"


def test_every_file_named_in_a_document_exists() -> None:
    file = re.compile(r"`((?:services|shared|onsale|features|bench|tests|deploy|proof|tools)/[\w./-]+\.\w+)`")
    named = {(name, path) for path in MAINTAINED for name in file.findall(path.read_text())}
    assert [each for each in sorted(named) if not (ROOT / each[0]).exists()] == []


def test_the_architecture_diagram_is_drawn_from_its_source() -> None:
    source, picture = ((ROOT / "docs" / "images" / f"architecture.{kind}").read_text() for kind in ("dot", "svg"))
    boxes = set(re.findall(r"^ +(\w+) \[label=", source, re.M))
    titles = re.findall(r"<title>(\w+)</title>", picture)
    assert boxes == {title for title in titles if title != "onsale" and not title.startswith("cluster_")}
    drawn = {html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)}
    labels = re.findall(r'label="([^"]*)"', source) + re.findall(r"label=<(.*)>\]", source)
    assert {line for label in labels for line in re.split(r"\\n|<br/>", re.sub(r"</?b>", "", label))} <= drawn


def test_the_tables_of_recovery_times_show_what_the_drills_measured() -> None:
    rows, readme = recoveries.kept(), (ROOT / "README.md").read_text()
    assert len(rows) > len(front.RECOVERIES)
    assert front.RECOVERED.replaced(readme, front.recovered(recoveries.by_name(rows))) == readme
    assert recoveries.page() == recoveries.PAGE.read_text()


def test_every_make_target_in_a_document_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in MAINTAINED:
        blocks = "".join(re.findall(r"```sh\n(.*?)```", path.read_text(), re.S))
        named = set(re.findall(r"`make ([a-z-]+)", path.read_text())) | set(
            re.findall(r"^make ([a-z-]+)", blocks, re.M)
        )
        assert named <= targets, (path.name, named - targets)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def commands_named(text: str) -> list[list[str]]:
    """The words after `onsale` of every command in code, in the text or in blocks of shell."""
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.S)).replace("\\\n", " ")
    named = re.findall(r"`(?:\.venv/bin/)?onsale ([a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
    named += re.findall(r"(?:^|[;&|(]\s*)(?:\.venv/bin/)?onsale ([a-z][^\n;&|#)]*)", blocks, re.M)
    return [command.split() for command in named]


def options_of(name: str, after: list[str]) -> set[str]:
    """The options of a command, or of a command of a group. Raises `KeyError` if there is none of this name."""
    command = loaded({entry.name: entry for entry in commands()}[name])
    if hasattr(command, "commands") and after and after[0][0].islower():
        command = command.commands[after[0]]
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}


def test_every_command_in_a_document_exists_with_its_options() -> None:
    for words in (words for path in MAINTAINED for words in commands_named(path.read_text())):
        for name, *after in itertools.product(*(word.split("|") for word in words[:2])):
            written = {option for word in words for option in re.findall(r"^--[a-z-]+", word)}
            assert written <= options_of(name, after), " ".join(words)


def test_the_afternoon_of_reading_is_as_long_as_it_says() -> None:
    """To a tenth: whoever plans an afternoon is not misled, and not every change needs a new number."""
    text = (ROOT / "docs" / "explain" / "architecture.md").read_text()
    rows = re.findall(
        r"^\|[^|]*\| `([^`]+)` \| (\d+) \|$", text.partition("## One afternoon")[2].partition("\n## ")[0], re.M
    )
    sizes = {path: len((ROOT / path).read_text().splitlines()) for path, _ in rows}
    assert len(rows) > 20
    assert {
        path: (said, sizes[path]) for path, said in rows if abs(int(said) - sizes[path]) > 5 + sizes[path] / 10
    } == {}
    assert f"{sum(int(said) for _, said in rows):,} |" in text
