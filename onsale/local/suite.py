"""A local suite: what to run, and what is running."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onsale.local.ports import HOST as LOOPBACK
from onsale.local.process import Child, Report, RestartedChild

if TYPE_CHECKING:  # its import takes as long as starting PostgreSQL
    from shared.contracts.event_file import EventFile


@dataclass
class Suite:
    """What to run, and what is running."""

    data_dir: Path
    events: "Sequence[EventFile]"
    host: str = LOOPBACK
    port: int = 8000
    processes: int = 1
    verbose: bool = False
    report: Report = print
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    pictures: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)  # of each event, by their names
    children: list[Child] = field(default_factory=list)
    restarted: list[RestartedChild] = field(default_factory=list)
    scraped: dict[str, str] = field(default_factory=dict)  # internal address of each process, for Prometheus
    own_ports: dict[str, int] = field(default_factory=dict)  # at which each process alone answers, if there are several
    console_link: str = ""  # works once; without a console there is none

    @property
    def url(self) -> str:
        return f"http://{'localhost' if self.host in {LOOPBACK, '0.0.0.0'} else self.host}:{self.port}"  # noqa: S104
