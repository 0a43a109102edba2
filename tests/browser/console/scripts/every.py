"""All scripts."""

from tests.browser.console.desk import SCRIPTS
from tests.browser.console.scripts import line, orders, rehearsal, sale, stock

__all__ = ["SCRIPTS", "line", "orders", "rehearsal", "sale", "stock"]
