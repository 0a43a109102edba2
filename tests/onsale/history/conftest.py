"""The sound sale that tests of the checker break in one point."""

from tests.onsale.history.doctored import sale

__all__ = ["sale"]
