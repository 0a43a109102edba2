"""Names on tickets: what an event asks for, and what is a name.

A name is kept as it was meant (`tidy`): one line, without the blanks and invisible characters that pasting brings.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from shared.contracts.fields import NO_NULL, TIDIED_MAX, Body, tidy

NamesWanted = Literal["none", "order", "ticket"]
NAME_CHARS_MAX, NAMES_MAX = 100, 100
TICKET_ID = "^[A-Z0-9]{12}$"


def _tidied(value: Any) -> Any:
    return tidy(value) if isinstance(value, str) and len(value) <= TIDIED_MAX else value


def _each_fits(value: Any) -> Any:
    """Says which ticket has no name, or too long a one; the ends of the list are the checkout's to check."""
    for n, name in enumerate(value if isinstance(value, list) and len(value) <= NAMES_MAX else (), start=1):
        if isinstance(name, str) and not (length := len(_tidied(name))):
            raise ValueError(f"ticket {n} has no name")
        if isinstance(name, str) and length > NAME_CHARS_MAX:
            raise ValueError(f"the name on ticket {n} has more than {NAME_CHARS_MAX} characters")
    return value


PersonName = Annotated[
    str,
    BeforeValidator(_tidied),
    StringConstraints(pattern=NO_NULL, min_length=1, max_length=NAME_CHARS_MAX),
]
TicketNames = Annotated[list[PersonName], BeforeValidator(_each_fits), Field(max_length=NAMES_MAX)]
TicketId = Annotated[str, StringConstraints(pattern=TICKET_ID)]


class NamesChange(Body):
    """New names on tickets, by `ticket_id`; or the one name of an order whose event asks for one an order."""

    names: dict[TicketId, PersonName] = Field(default_factory=dict, max_length=NAMES_MAX)
    name: PersonName | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if bool(self.names) == (self.name is not None):
            raise ValueError("send names by ticket_id, or the one name of the order")
        return self
