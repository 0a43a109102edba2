"""Every write of the admin API has a control that an operator can press: it sends what a running suite took, once for a
double click, and says what came of it. The same scripts run at a suite in `proof/browser/console`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from features.console.schemas import Snapshot
from shared.contracts.admin.operation import models
from shared.contracts.admin.operator_calls import OPERATIONS
from tests.browser.console.conftest import OpenAlone
from tests.browser.console.desk import operation_of, writes
from tests.browser.console.recorded import Recording
from tests.browser.console.scripts.every import SCRIPTS

OF_FANS = "/queue/lottery"  # the lottery's page, which fans read too
NO_CONTROL = dict.fromkeys(
    ("apply_queue_event", "apply_inventory_event", "put_picture", "apply_prices_event"),
    "an event is made from its file, which the organiser keeps: `onsale events apply`",
) | {"change_gate": "where a gate sends visitors is set up before the sale, by an admin"}


def test_every_write_of_the_admin_api_has_a_control_or_a_reason_why_not() -> None:
    pressed = set().union(*(script.presses for script in SCRIPTS.values()))
    assert pressed | NO_CONTROL.keys() == writes()
    assert not pressed & NO_CONTROL.keys()


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_script_alone(alone: OpenAlone, name: str) -> None:
    desk = await alone(name)
    await SCRIPTS[name].run(desk)
    assert desk.alone.phase == len(desk.alone.recording.phases) - 1, "every recorded write was sent"


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_recorded_is_what_the_models_say(name: str) -> None:
    """A field that a model has lost, or has taken on, asks for a new recording."""
    called, recording = set[str | None](), Recording.load(name)
    for phase in recording.phases:
        answers = {**phase.reads}
        if phase.write and phase.answer:
            called.add(operation := operation_of(phase.write.method, phase.write.path))
            answers[f"{phase.write.method} {phase.write.path}"] = phase.answer
            if operation and (body := OPERATIONS[operation].body):
                models(body).validate_python(phase.write.body)
        for request, answer in answers.items():
            called.add(operation := operation_of(*request.split(" ", maxsplit=1)))
            assert operation or request.endswith(OF_FANS), request
            if operation and answer.status < 400:
                form = OPERATIONS[operation].answer
                is_as_modelled(models(form) if form else TypeAdapter(None), answer.body)
    for snapshot in recording.heard:
        is_as_modelled(TypeAdapter(Snapshot), snapshot)
    assert called >= SCRIPTS[name].presses


def is_as_modelled(kind: TypeAdapter[Any], body: Any) -> None:
    found = set(fields_of(kind.dump_python(kind.validate_python(body), mode="json")))
    assert found == set(fields_of(body)), f"{kind}: record anew"


def fields_of(document: Any, path: str = "") -> Iterator[str]:
    """The names of all fields, with the names of those they are in."""
    inside = document.items() if isinstance(document, dict) else (("", one) for one in document or ())
    for name, value in inside:
        yield f"{path}.{name}"
        if isinstance(value, (dict, list)):
            yield from fields_of(value, f"{path}.{name}")
