"""The rules of forward-auth in a room's part of the event file."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shared.contracts.fields import Body, ReasonText
from shared.contracts.file_parts import GuardedChange, LeftOut, RoomRules

SiteOrigin = Annotated[str, StringConstraints(pattern=r"^https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?$")]
PathPattern = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9_.~/-]*(\*[A-Za-z0-9_.~/-]*){0,3}$", max_length=128)
]


class ForwardAuthRules(Body):
    """Forward-auth in front of another site: the waiting room, the sites to return to, the paths without a pass."""

    waiting_room: SiteOrigin | None = Field(
        None, description="Origin of the fan pages; null: a path on the site's own host."
    )
    return_to: list[SiteOrigin] = Field([], max_length=50, description="Origins to which a fan may return.")
    let_through: list[PathPattern] = Field(
        [],
        max_length=50,
        description="Paths that need no pass; up to three `*` each match any characters.",
    )
    on_engine_error: Literal["admit", "wait"] = Field("wait", description="While the waiting room cannot call fans.")
    admit_on_error_s: int = Field(60, ge=1, le=3600, description="Time limit of `admit` per outage.")

    def sends_elsewhere_than(self, other: "ForwardAuthRules") -> bool:
        """Whether visitors or their passes would go to another site."""
        return (self.waiting_room, set(self.return_to)) != (other.waiting_room, set(other.return_to))


NO_GATE = ForwardAuthRules()


class RoomGate(RoomRules):
    """A room's field `gate`."""

    gate: ForwardAuthRules = NO_GATE

    def guarded_change(self, before: "RoomGate") -> GuardedChange | None:
        return REDIRECTS if self.gate.sends_elsewhere_than(before.gate) else super().guarded_change(before)

    def left_out_of_rehearsals(self) -> list[LeftOut]:
        why = "forward-auth: simulated fans buy here"
        own = [LeftOut("gate", NO_GATE, why)] if self.gate != NO_GATE else []
        return [*super().left_out_of_rehearsals(), *own]


class RoomGatePatch(Body):
    """The field `gate` in a change of a room."""

    gate: ForwardAuthRules | None = None


class GateChange(Body):
    """The whole rules of forward-auth; fields that are left out take their default."""

    gate: ForwardAuthRules
    reason: ReasonText | None = None


REDIRECTS = GuardedChange(
    control="change_gate",
    fields="gate.waiting_room or gate.return_to",
    effect="gate.waiting_room and gate.return_to send visitors to other sites",
    instead="POST …/room/gate",
)
