"""All guards, and their page, docs/develop/guards.md: how many there are by tier and area, how to add one, and the test
of each.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from proof.guards.console_guards import GUARDS as CONSOLE
from proof.guards.gateway_guards import GUARDS as GATEWAY
from proof.guards.guard import AREAS, ROOT, TIERS, Guard, node_id, tiers
from proof.guards.inventory_guards import GUARDS as INVENTORY
from proof.guards.loops_guards import GUARDS as LOOPS
from proof.guards.notifier_guards import GUARDS as NOTIFIER
from proof.guards.onsale_guards import GUARDS as ONSALE
from proof.guards.orders_guards import GUARDS as ORDERS
from proof.guards.orders_worker_guards import GUARDS as ORDERS_WORKER
from proof.guards.queue_guards import GUARDS as QUEUE
from proof.guards.shared_guards import GUARDS as SHARED
from proof.guards.web_guards import GUARDS as WEB

GUARDS: tuple[Guard, ...] = (
    *GATEWAY, *QUEUE, *INVENTORY, *ORDERS, *ORDERS_WORKER, *NOTIFIER, *CONSOLE, *SHARED, *ONSALE,
    *WEB, *LOOPS,
)  # fmt: skip
PAGE = ROOT / "docs" / "develop" / "guards.md"
HEAD = """\
# Guards: what keeps each promise, and which test is red without it

A guard is a piece of code that keeps a promise: a comparison before a write, a unique index, a limit, an escape. Each
of these was taken out in a copy of the tree, and the test beside it failed. The tier is the cheapest command that runs
that test: `make fast`, `make test` or `make proof`. A test may move, or be replaced by a cheaper one, as long as its
guards stay red without it.

```sh
python -m proof.guards --match orders/        # takes out the guards that name this
python -m proof --only guards                 # all: about an hour on two cores
python -m proof --only guards --touched main  # those whose file or test changed since this commit
python -m proof.guards --save                 # writes this page
```

**To add one**: a `Guard` in the list of its service in `proof/guards/`: what it keeps in a user's words, the file, the
text to take out (it occurs once in the file) and what stands there instead, and the name of a test. The change is as
small as possible and still runs: the test has to fail by an assertion, not because nothing works any more. Choose the
cheapest test that fails; write one if none does. `tests/proof/test_guards.py` fails when a text or a test is no longer
there. Where two guards keep the same promise, and no test can fail unless both are gone, neither is listed. What the
[models](../explain/models.md) take out of themselves is not repeated here.

"""


def save() -> None:
    tier_of = tiers(node_id(guard.test) for guard in GUARDS)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(GUARDS, {guard.test: tier_of[node_id(guard.test)] for guard in GUARDS}))


def page(guards: Sequence[Guard], tier_of: Mapping[str, str]) -> str:
    """The page for these guards, with the tier of each test."""
    areas = sorted({guard.area for guard in guards}, key=AREAS.index)
    counts = Counter((guard.area, tier_of[guard.test]) for guard in guards)
    lines = [f"| guards of | {' | '.join(f'`make {tier}`' for tier in TIERS)} | all |", "|---|---:|---:|---:|---:|"]
    lines += [_count_line(area, [counts[area, tier] for tier in TIERS]) for area in areas]
    lines += [_count_line("**all**", [sum(counts[area, tier] for area in areas) for tier in TIERS])]
    for area in areas:
        lines += ["", f"## {area}", "", "| what it keeps | file | red without it | tier |", "|---|---|---|---|"]
        lines += [row(guard, tier_of[guard.test]) for guard in guards if guard.area == area]
    return HEAD + "\n".join(lines) + "\n"


def row(guard: Guard, tier: str) -> str:
    return f"| {guard.keeps} | `{guard.path}` | `{guard.test}` | {tier} |"


def _count_line(name: str, counts: Sequence[int]) -> str:
    return f"| {name} | {' | '.join(map(str, counts))} | {sum(counts)} |"
