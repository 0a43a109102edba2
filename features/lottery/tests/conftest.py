from tests.onsale.conftest import onsale  # noqa: F401 - a fixture
