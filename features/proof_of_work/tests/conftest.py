"""The gateway's fixtures, and the feature's own object in it."""

import pytest
from fastapi import FastAPI

from features.proof_of_work.gateway import JoinPolicy
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
def policy(app: FastAPI) -> JoinPolicy:  # noqa: F811
    found: JoinPolicy = app.state.parts[JoinPolicy]
    return found
