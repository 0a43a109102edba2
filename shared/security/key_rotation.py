"""Key rotation without interruption: a key is announced, then signs, then retires, then is gone, each at its own time.

Every process accepts a key before any process signs with it, and goes on accepting it as long as anything it signed is
valid. The stages follow from times in the key file, so that processes that read it agree without communication.
"""

from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shared.security.tokens import Keyring, b64, unb64

JWKS_MAX_AGE_S = 300
READ_EVERY_S = 5.0  # how often a process reads the key file
KEYS_MAX, HISTORY_MAX, FILE_MAX_BYTES = 16, 50, 100_000

Purpose = Literal["queue_token", "pass", "service", "ticket"]
Stage = Literal["announced", "signing", "retiring", "gone"]


class Overlap(NamedTuple):
    """Seconds for which a key is announced before it signs, and accepted after another one signs."""

    announce_s: int
    life_s: int


OVERLAPS: dict[Purpose, Overlap] = {
    "queue_token": Overlap(announce_s=60, life_s=8 * 86_400),  # a browser keeps its token for a week
    "pass": Overlap(announce_s=2 * JWKS_MAX_AGE_S, life_s=2 * 86_400),  # a session is a day at most, a hold another
    "service": Overlap(announce_s=60, life_s=120),  # signatures are good for half a minute
    "ticket": Overlap(announce_s=86_400, life_s=800 * 86_400),  # scanners load keys by hand; shows can be years ahead
}


class BadKeys(ValueError):
    """The key file is unusable; the message gives the reason and never the content."""


def _secret(text: str) -> str:
    if len(unb64(text)) < 32:
        raise ValueError("a secret has at least 32 bytes")
    return text


class Key(BaseModel):
    """One key: when it begins to sign, and when it is no longer accepted (`None`: not decided)."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kid: str = Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")
    secret: Annotated[str, AfterValidator(_secret)] = Field(repr=False)
    signs_from_s: int = Field(ge=0)
    gone_at_s: int | None = Field(None, ge=0)

    def gone(self, now_s: float) -> bool:
        return self.gone_at_s is not None and now_s >= self.gone_at_s


class KeyChange(BaseModel):
    """An entry of the audit log of keys, stored with the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_s: int
    by: str
    action: str
    purpose: Purpose
    kid: str


Ring = Annotated[list[Key], Field(min_length=1, max_length=KEYS_MAX)]


class RotatingKeys(BaseModel):
    """The keys of rotating purposes, oldest first, and their audit log. `public`: the public halves of purposes whose
    secrets this file does not have, for services that only verify.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    rings: dict[Purpose, Ring]
    public: dict[Purpose, Ring] = {}
    history: list[KeyChange] = Field([], max_length=HISTORY_MAX)

    @classmethod
    def read(cls, path: Path) -> "RotatingKeys":
        """Raises `BadKeys` for a file that is missing, unreadable, or leaves a time without a signing key."""
        try:
            raw = path.read_bytes()
            if len(raw) > FILE_MAX_BYTES:
                raise BadKeys("the file is too large")
            keys = _FILE.validate_json(raw).rotating
        except OSError as away:
            raise BadKeys(away.strerror or "cannot be read") from away
        except ValidationError as broken:
            first = broken.errors(include_input=False, include_url=False)[0]
            raise BadKeys(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        for purpose, ring in (*keys.rings.items(), *keys.public.items()):
            _require_no_gap(purpose, ring)
        return keys

    def part(self, purposes: Collection[Purpose], *, public: Collection[Purpose] = ()) -> "RotatingKeys":
        """The keys of these purposes alone, and the public halves of those."""
        return RotatingKeys(
            rings={purpose: self.rings[purpose] for purpose in purposes},
            public={purpose: [_public_half(key) for key in self.rings[purpose]] for purpose in public},
        )

    def stages(self, purpose: Purpose, now_s: float) -> list[tuple[Key, Stage]]:
        """Each key of the ring with its stage, oldest first."""
        return _stages(self.rings[purpose], now_s)

    def rotate(self, purpose: Purpose, secret: bytes, *, signs_from_s: int) -> Key:
        """Announces a key that signs from `signs_from_s`; the others retire and end with what they signed."""
        ring = self.rings[purpose]
        highest = max((int(n) for key in ring if (n := key.kid[1:]).isdigit()), default=0)
        new = Key(kid=f"k{highest + 1}", secret=b64(secret), signs_from_s=signs_from_s)
        gone_at_s = signs_from_s + OVERLAPS[purpose].life_s
        kept = [key if key.gone_at_s else key.model_copy(update={"gone_at_s": gone_at_s}) for key in ring]
        self.rings[purpose] = [*kept, new]
        return new

    def bring_forward(self, purpose: Purpose, *, signs_from_s: int) -> Key:
        """Lets the newest key sign sooner than announced."""
        *others, newest = self.rings[purpose]
        sooner = newest.model_copy(update={"signs_from_s": min(signs_from_s, newest.signs_from_s)})
        self.rings[purpose] = [*others, sooner]
        return sooner

    def end(self, purpose: Purpose, kid: str, *, at_s: int) -> None:
        """Ends a key: it is not accepted from `at_s` on."""
        self.rings[purpose] = [
            key.model_copy(update={"gone_at_s": at_s}) if key.kid == kid else key for key in self.rings[purpose]
        ]

    def forget(self, now_s: float) -> None:
        """Deletes the keys that are gone: their secrets could only be misused."""
        for purpose, ring in self.rings.items():
            self.rings[purpose] = [key for key in ring if not key.gone(now_s)]

    def record(self, change: KeyChange) -> None:
        self.history = [*self.history, change][-HISTORY_MAX:]

    def keyring(self, purpose: Purpose, now_s: float) -> Keyring:
        """The signing key first, then all other accepted keys. Raises `BadKeys` if none signs."""
        return _keyring(purpose, self.rings[purpose], now_s)

    def public_keyring(self, purpose: Purpose, now_s: float) -> Keyring:
        """The public halves in the same order, from the secrets if this file has them. Raises `BadKeys`."""
        if purpose in self.rings:
            return self.keyring(purpose, now_s).public()
        return _keyring(purpose, self.public[purpose], now_s)


def _keyring(purpose: Purpose, ring: list[Key], now_s: float) -> Keyring:
    order = {"signing": 0, "announced": 1, "retiring": 2}
    staged = [(order[stage], key) for key, stage in _stages(ring, now_s) if stage != "gone"]
    ranked = sorted(staged, key=lambda pair: pair[0])
    if not ranked or ranked[0][0] != 0:
        raise BadKeys(f"{purpose}: no key signs now; check the clock of this host")
    return Keyring({key.kid: unb64(key.secret) for _, key in ranked})


def _stages(ring: list[Key], now_s: float) -> list[tuple[Key, Stage]]:
    alive = [key for key in ring if not key.gone(now_s) and key.signs_from_s <= now_s]
    signing = alive[-1] if alive else None
    return [(key, _stage(key, signing, now_s)) for key in ring]


def _public_half(key: Key) -> Key:
    [raw] = Keyring({key.kid: unb64(key.secret)}).public().keys.values()
    return key.model_copy(update={"secret": b64(raw)})


class _File(BaseModel):
    """The key file; its other members are not read here."""

    rotating: RotatingKeys


_FILE = TypeAdapter(_File)


def _stage(key: Key, signing: Key | None, now_s: float) -> Stage:
    if key.gone(now_s):
        return "gone"
    if key is signing:
        return "signing"
    return "announced" if key.signs_from_s > now_s else "retiring"


def _require_no_gap(purpose: str, ring: list[Key]) -> None:
    """Raises `BadKeys` unless a key signs at every time after the first key began."""
    kids = [key.kid for key in ring]
    if len(set(kids)) != len(kids):
        raise BadKeys(f"{purpose}: two keys have the same kid")
    if ring[-1].gone_at_s is not None:
        raise BadKeys(f"{purpose}: the newest key must not have an end")
    for older, newer in pairwise(ring):
        if newer.signs_from_s < older.signs_from_s:
            raise BadKeys(f"{purpose}: the keys must be ordered oldest first")
        if older.gone_at_s is not None and older.gone_at_s < newer.signs_from_s:
            raise BadKeys(f"{purpose}: {older.kid} is gone before {newer.kid} signs")
