"""Imports a module with all that it imports, without garbage collections and without what nobody here uses."""

import gc
import importlib
import sys
from types import ModuleType

# What libraries import if it is there, and do without otherwise: a command line, metrics of a client, colours.
UNUSED = ("httpx._main", "opentelemetry.sdk.metrics", "mako.ext.pygmentplugin", "rich.traceback")


def import_module(name: str) -> ModuleType:
    """As `importlib.import_module`. What an import makes stays, so no collection looks for garbage in it: neither
    meanwhile nor later, when the process ends at the latest. They would cost a command a third of its time, and what is
    unused another fifth.
    """
    left_out = [unused for unused in UNUSED if unused not in sys.modules]
    sys.modules.update(dict.fromkeys(left_out))  # type: ignore[arg-type]  # `None` makes an import fail
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
        for unused in left_out:
            sys.modules.pop(unused, None)
