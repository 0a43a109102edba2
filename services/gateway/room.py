"""What the gateway's doors are handed: one object per process, opened by the app."""

from dataclasses import dataclass

from services.gateway.identity import Identities
from services.gateway.joins import Joins
from services.gateway.life import Life
from services.gateway.line_board import LineBoard
from services.gateway.lottery import Lotteries
from services.gateway.places import Places
from services.gateway.settings import Settings
from shared.tokens import PassReader


@dataclass(frozen=True, slots=True)
class Room:
    """Everything a request at this door may need."""

    settings: Settings
    board: LineBoard
    identities: Identities
    joins: Joins
    places: Places
    life: Life
    passes: PassReader
    lotteries: Lotteries
