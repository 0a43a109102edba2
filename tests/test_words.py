"""No word for fans stands in code: texts come from `shared/words`, complete in every language, and each is used."""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from babel import Locale

from shared.words.words import FOLDER, LANGUAGES

SCRIPTS = sorted(Path("web/fans").rglob("*.js"))
TEMPLATES = sorted(Path("features/pages/templates").glob("*.html"))
REFERENCE = {"problem.html", "problems.html"}  # the reference of the API is in English
PAPERS = [
    *Path("features/mail/orders").glob("[cr]*.py"), *Path("services/orders/tickets").glob("[bs]*.py"),
    *Path("features/papers/orders").glob("[lp]*.py"), Path("features/pages/problem_page.py"),
]  # fmt: skip
USERS = [*SCRIPTS, *TEMPLATES, *chain.from_iterable(
    Path(folder).rglob("*.py")
    for folder in (
        "services/orders", "features/mail", "features/pages", "features/papers", "shared/words",
    )
)]  # fmt: skip

# -- what looks like a word for fans -----------------------------------------------------------------------------------

PROSE = re.compile(r"[^\W\d_]{2,}[’']?[,;:…!?.]?\s+[^\W\d_]+|^\s*[A-Z][a-z]+(?![\w-])|[^\W\d_]{2,}[…!?.](\s|$)")
TECHNICAL = re.compile(
    r"""Bearer\ |Content-Type|application/|[a-z-]+(\s[a-z-]+)*$  # header fields, class lists, event names, selectors
    |[\w\s.#>\[\]=":*-]+\[[\w-]+|(Accept|Authorization|Date)$|ResizeObserver|Escape$|Enter$|Home$|End$|Tab$
    |(Arrow|Page)(Up|Down|Left|Right)$|Notification$|\([a-z-]+:|.*;\ SameSite=|\s*:host\ \{""",
    re.VERBOSE,
)
TECHNICAL_HERE = re.compile(r"[{\w.-]+[:{][^ ]|[a-z-]+ [a-z-]+|#|Helvetica$|text/html|default-src|accept, |;|[a-z:]+\{")
LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)""", re.DOTALL
)
SHOWN = re.compile(
    r"""\b(?:write|fault)\([^,()]+(?:\([^()]*\))?,\s*["'`](?=[^"'`]*[^\W\d_])(?!\$\{)
    |\b(?:announce|trouble|alert|confirm)\(\s*["'`](?=[^"'`]*[^\W\d_])(?!\$\{)
    |\.(?:textContent|title|placeholder|ariaLabel)\s*=\s*["'`](?=[^"'`]*[^\W\d_])(?!\$\{)""",
    re.VERBOSE,
)
FOR_DEVELOPERS = re.compile(r"new RangeError\([^\n]*\);")
VALUE = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}")
SPOKEN_ATTRIBUTES = re.compile(r"""\b(?:aria-label|alt|title|placeholder|label)=("[^"]*"|'[^']*')""")


def words_in_script(source: str) -> list[str]:
    """Literals of a script that a fan would read; what a developer reads in the console is none."""
    source = FOR_DEVELOPERS.sub("", source)
    found = [source[hit.start() :].split("\n", 1)[0] for hit in SHOWN.finditer(source)]
    for literal in LITERAL.finditer(source):
        text = VALUE.sub("{}", (literal["text"] or "")[1:-1])
        if PROSE.search(text) and not TECHNICAL.match(text):
            found.append(text)
    return found


def words_in_template(source: str) -> list[str]:
    """Text of a template that comes from no catalogue."""
    without = re.sub(r"<%!.*?%>|<%(?=\s).*?%>|^\s*%.*?$|<!--.*?-->", "", source, flags=re.DOTALL | re.MULTILINE)
    markup = VALUE.sub("", without)
    spoken = [hit[1][1:-1] for hit in SPOKEN_ATTRIBUTES.finditer(markup)]
    texts = re.sub(r"<[^>]*>", "\n", markup).split("\n")
    return [text.strip() for text in (*spoken, *texts) if re.search(r"[^\W\d_]", re.sub(r"&\w+;|Onsale", "", text))]


def words_in_module(source: str) -> list[str]:
    """Literals of a Python module that a fan would read: not docstrings, and not what is raised."""
    tree = ast.parse(source)
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Assert) or _is_documentation(node):
            hidden |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.Subscript):
            hidden |= {id(part) for part in ast.walk(node.slice)}
    literals = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in hidden)
    texts = (re.sub(r"<[^>]*(>|$)", "", text) for text in literals if isinstance(text, str) and "://" not in text)
    return [text for text in texts if PROSE.search(text) and not TECHNICAL_HERE.match(text)]


def _is_documentation(node: ast.AST) -> bool:
    """A docstring, or what the API's document says."""
    if isinstance(node, ast.keyword):
        return node.arg in ("summary", "description")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# -- the code ----------------------------------------------------------------------------------------------------------


def test_scripts_templates_mails_and_papers_take_their_words_from_the_catalogue():
    of_fans = [path for path in TEMPLATES if path.name not in REFERENCE]
    for paths, words in ((SCRIPTS, words_in_script), (of_fans, words_in_template), (PAPERS, words_in_module)):
        assert {str(path): found for path in paths if (found := words(path.read_text("utf-8")))} == {}


def test_a_planted_word_is_found():
    for planted in (
        'write("status-text", "sold");', 'announce(`gone ${n}`);', 'trouble("Try again");', 'a = { a: "Sold out" };',
        'element("p", {}, "No more tickets left.");', "node.textContent = 'gone';", 'const W = `Only ${n} left`;',
        'fill("Nice", {})',
    ):  # fmt: skip
        assert words_in_script(planted), planted
    for fine in (
        'write("a", "");', 'element("p", { class: "big clock" });', 'h["Content-Type"] = "text/html"; // A word',
        "write(`${a}-error`, text);", 'write("a", `${b} · ${c}`);',
    ):  # fmt: skip
        assert not words_in_script(fine), fine
    for planted in ("<p>Sold out</p>", '<nav aria-label="Language">', "<p>${text('a')} left</p>", '<img alt="A hall">'):
        assert words_in_template(planted), planted
    for fine in (
        '<p class="big">${text("a", n=1)} ·&nbsp;×</p>',
        "% if a is None:\n  <b>${b}</b>\n% endif",
        '<img alt="">',
    ):
        assert not words_in_template(fine), fine
    for planted in (
        'a = f"Paid on {day}"',
        'SUBJECT = "Your tickets: {}"',
        'f("Sold out")',
        'x = "<p>Come in</p>"',
        'x = {1: "You paid"}[1]',
    ):
        assert words_in_module(planted), planted
    for fine in ('"""A docstring of words."""', 'raise ValueError("not a mailbox")', 'assert x, "never this"'):
        assert not words_in_module(fine), fine


# -- the catalogue -----------------------------------------------------------------------------------------------------


def catalogue(language: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{language}.json").read_text("utf-8")))


def forms(text: str | dict[str, str]) -> dict[str, str]:
    return text if isinstance(text, dict) else {"other": text}


def placeholders(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}


def faults(language: str, known: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a catalogue, compared with the English one."""
    english = catalogue("en")
    yield from (f"{key}: missing" for key in english.keys() - known.keys())
    yield from (f"{key}: not in English" for key in known.keys() - english.keys())
    plurals = Locale.parse(known["locale"], sep="-").plural_form
    categories = {*plurals.tags, "other"}
    for key in english.keys() & known.keys():
        here, there = forms(known[key]), forms(english[key])
        if placeholders(here.values()) != placeholders(there.values()):
            yield f"{key}: other placeholders than in English"
        if isinstance(known[key], dict) != isinstance(english[key], dict):
            yield f"{key}: plural forms in one language only"
        if isinstance(known[key], dict) and here.keys() != categories:
            yield f"{key}: its forms are not {sorted(categories)}"
        if any(not form.strip() for form in here.values()):
            yield f"{key}: empty"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_every_text_with_its_values_and_plural_forms(language):
    assert list(faults(language, catalogue(language))) == []


def test_a_planted_fault_of_a_catalogue_is_found():
    german = catalogue("de")
    one_form = {**german["tickets"]}
    del one_form["one"]
    for planted in ({"total": ""}, {"mail_paid": "Bezahlt."}, {"tickets": one_form}, {"tickets": "{n} Tickets"},
                    {"new": "neu"}, {"total": {"one": "x", "other": "y"}}):  # fmt: skip
        assert len(list(faults("de", {**german, **planted}))) >= 1, planted
    del german["total"]
    assert list(faults("de", german)) == ["total: missing"]


def used_keys() -> tuple[set[str], set[str]]:
    """Keys that scripts, templates and modules name; and beginnings of keys that are put together."""
    named, beginnings = set[str](), set[str]()
    for path in USERS:
        source = path.read_text("utf-8")
        if path.suffix == ".js":
            named |= set(re.findall(r"\btexts\.(\w+)", source))
            continue
        named |= set(re.findall(r"""["']([a-z]\w+)["']""", source))
        beginnings |= set(re.findall(r"""f["']([a-z]+_)\{""", source))
    return named, beginnings


def test_every_text_is_used_and_every_used_text_exists():
    named, beginnings = used_keys()
    known = catalogue("en").keys()
    unused = {key for key in known - named if not any(key.startswith(each) for each in beginnings)}
    assert unused == set()
    in_scripts = {key for path in SCRIPTS for key in re.findall(r"\btexts\.(\w+)", path.read_text("utf-8"))}
    sources = (path.read_text("utf-8") for path in USERS if path.suffix != ".js")
    with_words = [source for source in sources if "pages.words" in source or "<%" in source or "${text(" in source]
    by_call = {key for source in with_words for key in re.findall(r"""\btext\(["'](\w+)["']""", source)}
    assert (in_scripts | by_call) - known == set()


def test_every_text_of_a_problem_is_of_a_problem():
    slugs = {entry["slug"] for entry in json.loads(Path("features/pages/problems.json").read_text("utf-8"))}
    of_problems = {
        key.removeprefix("problem_").replace("_", "-") for key in catalogue("en") if key.startswith("problem_")
    }
    assert of_problems - slugs == {"no-connection", "unnamed"}, "these two are of the page itself"
