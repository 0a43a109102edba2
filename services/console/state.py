"""The container of the console: one object per process, opened by the app, handed to every handler."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.console.approvals import Approvals
from services.console.gathering.registry import Gathering
from services.console.history.samples import Samples
from services.console.rehearsal.rehearsals import Rehearsals
from services.console.reports import ReportPages
from services.console.settings import Settings
from services.console.sign_in import Sessions
from services.console.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a handler of the console may need."""

    settings: Settings
    tuning: Tuning
    gathering: Gathering
    samples: Samples
    sessions: Sessions
    reports: ReportPages
    approvals: Approvals
    rehearsals: Rehearsals


def _state(request: Request) -> State:
    state: State = request.app.state.deps
    return state


StateDep = Annotated[State, Depends(_state)]
