"""Every write of the admin API has a control that an operator can press: it sends what a running suite took, once for a
double click, and says what came of it. The same scripts run at a suite in `proof/browser/console`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from shared.contracts.admin import inventory, prices, queue
from shared.contracts.admin.console import Snapshot
from tests.browser.console.conftest import OpenAlone
from tests.browser.console.desk import ENDPOINTS, Row, row_of, writes
from tests.browser.console.recorded import Recording
from tests.browser.console.scripts.every import SCRIPTS

OF_FANS = "/queue/lottery"  # the lottery's page, which fans read too
NO_CONTROL: dict[Row, str] = {
    **{
        (
            endpoint.method,
            endpoint.path,
        ): "an event is made from its file, which the organiser keeps: `onsale events apply`"
        for endpoint in (queue.APPLY_EVENT, inventory.APPLY_EVENT, inventory.PUT_PICTURE, prices.APPLY_EVENT)
    },
    (
        "POST",
        "/admin/events/{event_id}/room/gate",
    ): "where a gate sends visitors is set up before the sale, by an admin",
}


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
    called, recording = set[Row | None](), Recording.load(name)
    for phase in recording.phases:
        answers = {**phase.reads}
        if phase.write and phase.answer:
            called.add(row := row_of(phase.write.method, phase.write.path))
            answers[f"{phase.write.method} {phase.write.path}"] = phase.answer
            if row and (body := ENDPOINTS[row].body):
                body.model_validate(phase.write.body)
        for request, answer in answers.items():
            called.add(row := row_of(*request.split(" ", maxsplit=1)))
            assert row or request.endswith(OF_FANS), request
            if row and answer.status < 400:
                is_as_modelled(ENDPOINTS[row].answer, answer.body)
    for snapshot in recording.heard:
        is_as_modelled(Snapshot, snapshot)
    assert called >= SCRIPTS[name].presses


def is_as_modelled(model: Any, body: Any) -> None:
    kind: TypeAdapter[Any] = TypeAdapter(model)
    found = set(fields_of(kind.dump_python(kind.validate_python(body), mode="json")))
    assert found == set(fields_of(body)), f"{model}: record anew"


def fields_of(document: Any, path: str = "") -> Iterator[str]:
    """The names of all fields, with the names of those they are in."""
    inside = document.items() if isinstance(document, dict) else (("", one) for one in document or ())
    for name, value in inside:
        yield f"{path}.{name}"
        if isinstance(value, (dict, list)):
            yield from fields_of(value, f"{path}.{name}")
