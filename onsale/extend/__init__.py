"""What a package of your own imports of Onsale: the types of its hooks, and nothing else.

These names keep their meaning from 0.2 on. What must change in one of them stands in CHANGELOG.md first, and for one
minor version more the old form works. Everything else of Onsale may change with any release. The hooks are described in
`docs/develop/features.md`, and `docs/examples/acme-onsale` is a whole package.

The names are listed in `names.py`. They are imported there when the first is asked for that a `FEATURE` can do without:
every command of `onsale` reads the features, and would wait a second for the frameworks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onsale.extend.names import *  # noqa: F403
else:
    from shared.features import BadFeature, CliCommand, Feature, PaymentProvider  # noqa: F401

    def __getattr__(name: str) -> Any:
        return getattr(import_module(f"{__name__}.names"), name)
