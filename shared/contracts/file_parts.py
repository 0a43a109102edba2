"""What features add to the event file: fields of the room and of the event, checked with the rest of it.

A feature's fields stand in a `Body` of its own, which joins the core's model when that is defined. The core reads and
stores the whole; the feature reads its fields by `part_of`. Fields of a feature that is not installed are refused in an
event file, and passed over in what is stored and in frames.
"""

import types
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator

from shared.contracts.admin.checks import Check
from shared.contracts.fields import Body
from shared.errors.problems import InvalidRequest
from shared.features import FilePlace, installed, load

Model = TypeVar("Model", bound=BaseModel)
Fields = TypeVar("Fields", bound=BaseModel)


class GuardedChange(NamedTuple):
    """A change of a room that takes an admin, and a second person where `control` needs one: of `fields`, which do what
    `effect` says; `instead` is the request that two persons can agree on.
    """

    control: str
    fields: str
    effect: str
    instead: str


class LeftOut(NamedTuple):
    """What a rehearsal's copy of a room has in the place of a field that simulated fans cannot pass, and why."""

    field: str
    value: Any
    why: str


class RoomRules(Body):
    """What joins a room's options: a `Body` that says more about its fields. Each method adds to that of `super()`."""

    def guarded_change(self, before: Any) -> GuardedChange | None:
        """What guards the change from the options of `before`; None if nothing does."""
        return None

    def left_out_of_rehearsals(self) -> list[LeftOut]:
        """The fields that simulated fans cannot pass."""
        return []

    def findings(self) -> list[Check]:
        """What `onsale doctor` says about the fields."""
        return []


class EventFields(Body):
    """What joins inventory's part of an event file: a `Body` that says more about its fields."""

    @property
    def files(self) -> list[str]:
        """The names of the files that lie beside the event file, each once."""
        return []

    def check_file(self, content: bytes) -> None:
        """Raises `ValueError`, which says why this can be none of those files."""

    def findings(self, *, sale_ends_at: datetime | None, starts_at: datetime, now: datetime) -> list[Check]:
        """What `onsale doctor` says about the fields, for a sale and a show at these times."""
        return []


def with_file_parts(place: FilePlace) -> Callable[[type[Model]], type[Model]]:
    """Adds the fields of every installed feature to a model: a decorator."""

    def joined(model: type[Model]) -> type[Model]:
        parts = [load(feature.file_parts[place]) for feature in installed() if place in feature.file_parts]
        if not parts:
            return model
        named = {"__module__": model.__module__, "__doc__": model.__doc__}
        return types.new_class(model.__name__, (*parts, model), exec_body=lambda own: own.update(named))

    return joined


def part_of(model: BaseModel, fields: type[Fields]) -> Fields:
    """The same object as the fields of a feature that is installed."""
    if not isinstance(model, fields):
        raise TypeError(f"{type(model).__name__} has no fields of {fields.__name__}")
    return model


def require_on(file: BaseModel, place: FilePlace, off: Collection[str]) -> None:
    """Raises `InvalidRequest` if the file uses a field of a feature that is installed and switched off."""
    for feature in installed():
        if feature.name in off and place in feature.file_parts:
            own = load(feature.file_parts[place]).model_fields
            unused = {name: field.get_default(call_default_factory=True) for name, field in own.items()}
            if used := [name for name, value in unused.items() if getattr(file, name) != value]:
                raise InvalidRequest(f"{', '.join(used)}: the feature {feature.name} is switched off here.")


def only_known(model: type[BaseModel]) -> Any:
    """A validator that passes over what no installed feature knows, in the models within it too."""
    return BeforeValidator(partial(_known, model))


def _known(kind: Any, value: Any) -> Any:
    if not (isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, BaseModel)):
        return value
    fields = kind.model_fields
    return {name: _known(fields[name].annotation, each) for name, each in value.items() if name in fields}
