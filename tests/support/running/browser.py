"""Where Chromium is, and the mark of tests that need it."""

import shutil
from pathlib import Path

import pytest

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", shutil.which("chromium")) if path and Path(path).exists()), None
)
NEEDS_CHROMIUM = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
