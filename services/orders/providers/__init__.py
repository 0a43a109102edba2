"""Payment providers behind one protocol: charge with a token, or redirect and return.

A provider is a module here with `open_provider(client, settings)`; the setting `payment_providers` names those to open.
"""

from importlib import import_module
from importlib.util import find_spec

from services.orders.providers.provider import Provider
from services.orders.settings import Settings
from shared.http.outgoing import ExternalClient


def open_providers(client: ExternalClient, settings: Settings) -> dict[str, Provider]:
    """The providers of `payment_providers`, by name. Raises `ValueError` for one without a module or limits."""
    providers: dict[str, Provider] = {}
    for name in settings.payment_providers:
        module = f"{__name__}.{name}"
        opened = getattr(import_module(module), "open_provider", None) if find_spec(module) else None
        if opened is None:
            raise ValueError(f"payment_providers: there is no provider named {name}")
        providers[name] = opened(client, settings)
        if not hasattr(providers[name], "limits"):
            raise ValueError(f"payment_providers: {name} does not say what it takes in one charge: limits(currency)")
    return providers
