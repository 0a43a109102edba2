"""Faults of other people's servers (payment provider, mail, webhooks), and migrations that run in the middle."""

import asyncio
import signal
import sys
from collections.abc import Collection
from typing import Any

import httpx

from proof.swarm.faults.fault import Fault
from proof.swarm.site import Site
from tests.support.running.program import Program


class _OfOthers(Fault):
    target_name = ""
    words = ""

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return [cls.target_name]

    @classmethod
    def what(cls, target: str) -> str:
        return cls.words


class _OfTheProvider(_OfOthers):
    target_name = "sandbox"

    async def control(self, site: Site, **values: Any) -> None:
        """A provider that is away has no controls either."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            try:
                await client.post(f"{site.sandbox_url}/control", json=values)
            except httpx.HTTPError:
                site.say("the provider does not take the fault")


class ProviderUnavailable(_OfTheProvider):
    words = "payment provider answers 503"

    async def begin(self, site: Site) -> None:
        await self.control(site, down_for_s=3600)

    async def end(self, site: Site) -> None:
        await self.control(site, down_for_s=0)


class ProviderSlow(_OfTheProvider):
    words = "payment provider slow"
    longest_s = 9.0

    async def begin(self, site: Site) -> None:
        await self.control(site, latency_s=self.rng.choice((0.7, 2.5, 6.0)))

    async def end(self, site: Site) -> None:
        await self.control(site, latency_s=0)


class ProviderLimits(_OfTheProvider):
    words = "payment provider limits calls (429)"

    async def begin(self, site: Site) -> None:
        await self.control(site, rate_limit_per_s=self.rng.choice((0.2, 1, 5)))

    async def end(self, site: Site) -> None:
        await self.control(site, rate_limit_per_s=0)


class ProviderWebhooksLate(_OfTheProvider):
    words = "payment provider's webhooks late"

    async def begin(self, site: Site) -> None:
        await self.control(site, deliver_late_s=self.rng.choice((1, 4)))

    async def end(self, site: Site) -> None:
        await self.control(site, deliver_late_s=0)


class WebhookForged(_OfTheProvider):
    words = "payment provider's webhook forged"

    async def begin(self, site: Site) -> None:
        await self.control(site, forge_webhook={"charge_id": "ch_forged", "status": "succeeded"})


class MailAway(_OfOthers):
    target_name, words = "mail server", "mail server away"

    async def begin(self, site: Site) -> None:
        await site.close_mail()

    async def end(self, site: Site) -> None:
        await site.open_mail()


class MailRefuses(_OfOthers):
    target_name, words = "mail server", "mail server refuses"

    async def begin(self, site: Site) -> None:
        site.mail.replies = [self.rng.choice(("451 later", "550 no"))] * 1000

    async def end(self, site: Site) -> None:
        site.mail.replies = []


class MailSlow(_OfOthers):
    target_name, words = "mail server", "mail server slow"

    async def begin(self, site: Site) -> None:
        pause_s = self.rng.choice((1.0, 30.0))
        site.mail.pause = lambda: asyncio.sleep(pause_s)

    async def end(self, site: Site) -> None:
        site.mail.pause = None


class WebhookReceiverFails(_OfOthers):
    """Our webhooks are refused, cut off, or never answered to the end."""

    target_name, words = "webhook receiver", "receiver of our webhooks fails"

    async def begin(self, site: Site) -> None:
        site.receiver.faults = [self.rng.choice(("failing", "cut", "silent", "dripping"))] * 1000

    async def end(self, site: Site) -> None:
        site.receiver.faults = []


class MigrationInterrupted(_OfOthers):
    """`onsale migrate` runs in the middle of the sale, is killed, and runs again to its end."""

    target_name, words = "postgres", "migration in the middle of a sale, killed and run again"

    async def begin(self, site: Site) -> None:
        environ = site.fleet.programs["queue"].env
        self._migration = Program(
            [sys.executable, "-P", "-m", "onsale", "migrate"], site.ours / "migrate.log", env=environ
        )
        self._migration.start()

    async def end(self, site: Site) -> None:
        await asyncio.to_thread(self._migration.end, signal.SIGKILL)
        self._migration.start()
        code = await asyncio.to_thread(self._migration.process.wait, 60)
        if code != 0:
            site.say(f"the migration ended with {code}: {self._migration.log_tail()}")
