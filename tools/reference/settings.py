"""Every setting of every service, from the fields of its `Settings`."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from onsale.sandbox.settings import SandboxSettings
from shared.features import package_of
from shared.postgres.settings import PostgresSettings
from shared.process.settings import (
    OrderTokenKeys,
    PassKeys,
    PublicAddress,
    PublicSettings,
    QueueTokenKeys,
    ServiceSettings,
)
from shared.routes import SERVICES, Service
from shared.security.auth import AdminKeys
from shared.security.limits import LOOPBACK, Networks
from shared.security.tokens import Keyring
from shared.web.parts import with_settings_of_parts
from tools.reference.markdown import Section, code, codes, page, sentence

COLUMNS = ("variable", "default", "values", "what it does")
TEXT = """A service reads its settings once, at its start, from `<SERVICE>_<NAME>` or else from `ONSALE_<NAME>`, so
each of a service's own below may also be set for all as `ONSALE_<NAME>`. A value out of its bounds stops the start,
and so does a development key in production. [Limits](limits.md) gives the reasons of limits.

Each may be a file instead: `ONSALE_SECRETS_DIR` names a folder in which a file has the name of the variable, in any
case, such as `onsale_postgres_url` or `queue_pass_keys`. The environment wins. Keys may also be in one file that
rotates ([signing keys](../operate/keys.md)).

The end of a name is its unit: `_s` seconds, `_ms` milliseconds, `_h` hours, `_bytes`, `_mib`, `_percent`; `_max` is a
limit. Lists are separated by commas, except where JSON is named."""
PARTS: dict[str, type[Any]] = {
    "Of every service": ServiceSettings, "PostgreSQL": PostgresSettings,
    "Signed-in users": import_module("features.sign_in.users").SignInSettings,
    "Of services that fans reach": PublicSettings,
}  # fmt: skip
SHARED = (PublicAddress, PassKeys, QueueTokenKeys, OrderTokenKeys)
ROOT = Path(__file__).parents[2]
KEYS = "secret keys"
WORDS: dict[Any, str] = {
    int: "whole number", float: "number", bool: "`true`, `false`", SecretStr: "secret", Keyring: KEYS, Path: "file",
    AdminKeys: "secret", Networks: "networks",
}  # fmt: skip
ELSEWHERE = (
    ("ONSALE_SECRETS_DIR", "Folder with a file for each variable, for services and commands."),
    ("ONSALE_ADMIN_KEY", "An operator's key for commands; else the data directory's."),
    ("ONSALE_POSTGRES_BIN", "`onsale up`: folder of PostgreSQL's programs, in place of the installed wheel's."),
    ("ONSALE_REDIS_BIN", "`onsale up`: Redis' or Valkey's server program, in place of the installed wheel's."),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "Where traces go; unset, nothing is traced."),
    ("OTEL_SDK_DISABLED", "`true` switches traces off."),
    ("OTEL_SERVICE_NAME", "Name of the process in traces; `onsale` by default."),
    ("OTEL_TRACES_SAMPLER_ARG", "Share of requests that are traced; 0.01 by default."),
)


def fields(service: Service) -> dict[str, FieldInfo]:
    """All settings of a service, by name: its own, then those of features."""
    own: type[ServiceSettings] = import_module(f"{package_of(service)}.settings").Settings
    return dict(with_settings_of_parts(own, service).model_fields)


def settings_page() -> str:
    """docs/reference/settings.md"""
    return page("Settings", TEXT, _sections())


def _sections() -> Iterator[Section]:
    common = {name: field for part in PARTS.values() for name, field in part.model_fields.items()}
    for heading, part in PARTS.items():
        yield Section(
            heading, COLUMNS, [_row("ONSALE", name, common[name]) for name in part.__annotations__ if name in common]
        )
    shared = {name: field for part in SHARED for name, field in part.model_fields.items()}
    yield Section("Of several services", COLUMNS, [_row_with_services(*each) for each in shared.items()])
    for service in SERVICES:
        known = {**common, **shared}
        own = {name: field for name, field in fields(service).items() if _shown(field) != _shown(known.get(name))}
        yield Section(service.capitalize(), COLUMNS, [_row(service.upper(), *each) for each in own.items()])
    sandbox = [_row("ONSALE_SANDBOX", *each) for each in SandboxSettings.model_fields.items()]
    yield Section("Of the payment sandbox", COLUMNS, sandbox)
    yield Section("Read elsewhere", ("variable", "what it does"), [(code(name), text) for name, text in ELSEWHERE])


def _shown(field: FieldInfo | None) -> tuple[str, ...]:
    return (_default(field), _values("", field), field.description or "") if field else ()


def _row(prefix: str, name: str, field: FieldInfo) -> tuple[str, ...]:
    text = sentence(field.description or "")
    return code(f"{prefix}_{name.upper()}"), _default(field), _values(name, field), text


def _row_with_services(name: str, field: FieldInfo) -> tuple[str, ...]:
    *row, text = _row("ONSALE", name, field)
    readers = [service for service in SERVICES if name in fields(service)]
    return *row, f"{text} Read by {', '.join(readers[:-1])} and {readers[-1]}."


def _default(field: FieldInfo) -> str:
    """The default as a reader would write it."""
    value = field.default
    if field.default_factory is not None:
        return "a development key"
    if value is LOOPBACK:
        return "this machine"
    if value is None or isinstance(value, AdminKeys) or value in ("", (), frozenset()):
        return "unset"
    if isinstance(value, Path) and value.is_absolute():
        return code(value.relative_to(ROOT))
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, tuple | frozenset):
        return codes(value)
    return code(f"{value:.10g}" if isinstance(value, float) else value)


def _values(name: str, field: FieldInfo) -> str:
    """The type with its bounds."""
    kinds = {_word(kind) for kind in _kinds(field.annotation)} - {""}
    words = ["public keys" if name.endswith("_public_keys") and kind == KEYS else kind for kind in sorted(kinds)]
    bound = {type(part).__name__: getattr(part, type(part).__name__.lower(), None) for part in field.metadata}
    low, above, high = bound.get("Ge"), bound.get("Gt"), bound.get("Le")
    limits = [f"more than {above:,.10g}"] if above is not None else []
    if low is not None:
        limits = [f"{low:,.10g} to {high:,.10g}" if high is not None else f"at least {low:,.10g}"]
    elif high is not None:
        limits.append(f"at most {high:,.10g}")
    return ", ".join((*words, *limits))


def _kinds(annotation: Any) -> Iterator[Any]:
    """The alternatives of a type, without what annotates them."""
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    else:
        yield annotation


def _word(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return codes(get_args(kind))
    if get_origin(kind) in (tuple, frozenset):
        return "secrets" if SecretStr in get_args(kind) else "list"
    return WORDS.get(kind, "")
