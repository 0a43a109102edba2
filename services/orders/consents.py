"""Consent to reminders that was given with a reservation: fetched from inventory, which keeps it until we have it."""

from services.orders.reminders import owe
from services.orders.settings import Settings
from services.orders.stock import Stock
from shared.postgres import AsyncEngine
from shared.problems import Problem

TURN_S = 2.0


class ConsentTaker:
    """One turn takes all there are. What is taken twice is owed once."""

    def __init__(self, engine: AsyncEngine, stock: Stock, settings: Settings) -> None:
        self._engine, self._stock, self._settings = engine, stock, settings

    async def turn(self) -> None:
        heard: list[str] = []
        while True:
            try:
                consents = (await self._stock.consents(heard)).consents
            except Problem:
                return  # inventory is away: what was not said to be heard comes again
            for consent in consents:
                await owe(self._engine, self._settings, consent.reservation, consent.email)
            heard = [consent.reservation.reservation_id for consent in consents]
            if not heard:
                return
