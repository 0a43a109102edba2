"""The gateway's fixtures, and the feature's own object in it."""

import pytest
from fastapi import FastAPI

from features.forward_auth.gateway.decision import ForwardAuth
from tests.gateway.conftest import (  # noqa: F401
    app,
    browser,
    fan,
    inventory,
    publish_frame,
    queue,
    settings,
    state,
)


@pytest.fixture
def forward_auth(app: FastAPI) -> ForwardAuth:  # noqa: F811
    found: ForwardAuth = app.state.parts[ForwardAuth]
    return found
