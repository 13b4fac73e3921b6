"""Job ids: UUIDv7, made by the producer, in time order."""

from __future__ import annotations

import uuid

from leasehold.domain.errors import InvalidInput

LOWEST_ID = "00000000-0000-0000-0000-000000000000"


_VARIANTS = dict(zip("0123456789abcdef", "8888" + "9999" + "aaaa" + "bbbb", strict=True))


def make_id(milliseconds: int, randomness: bytes) -> str:
    """A UUIDv7 from a wall-clock time and ten random bytes. The random part is full: ids cannot be guessed."""
    return make_ids(milliseconds, randomness)[0]


def make_ids(milliseconds: int, randomness: bytes) -> list[str]:
    """One for each ten random bytes."""
    time, rest = f"{milliseconds & (1 << 48) - 1:012x}", randomness.hex()
    begin = f"{time[:8]}-{time[8:]}-7"
    return [
        f"{begin}{rest[n + 1 : n + 4]}-{_VARIANTS[rest[n + 4]]}{rest[n + 5 : n + 8]}-{rest[n + 8 : n + 20]}"
        for n in range(0, len(rest), 20)
    ]


def checked_id(text: object, field: str = "id") -> str:
    """The id in its one spelling, or a refusal that names the field."""
    if isinstance(text, uuid.UUID):
        return str(text)
    if isinstance(text, str):
        try:
            return str(uuid.UUID(text))
        except ValueError:
            pass
    raise InvalidInput(field, f"{text!r} is not a job id", "use the id that enqueue returned (a UUID)")
