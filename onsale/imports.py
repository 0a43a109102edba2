"""Imports a module with all that it imports, without garbage collections."""

import gc
import importlib
from types import ModuleType


def import_module(name: str) -> ModuleType:
    """As `importlib.import_module`. What an import makes stays, so no collection looks for garbage in it: neither
    meanwhile nor later, when the process ends at the latest. They would cost a command a third of its time.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
