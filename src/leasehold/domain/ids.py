"""Job ids: UUIDv7, made by the producer, in time order."""

from __future__ import annotations

import uuid

from leasehold.domain.errors import InvalidInput

LOWEST_ID = "00000000-0000-0000-0000-000000000000"


def make_id(milliseconds: int, randomness: bytes) -> str:
    """A UUIDv7 from a wall-clock time and ten random bytes. The random part is full: ids cannot be guessed."""
    time, rest = f"{milliseconds & (1 << 48) - 1:012x}", randomness.hex()
    variant = "89ab"[randomness[2] >> 6]
    return f"{time[:8]}-{time[8:]}-7{rest[1:4]}-{variant}{rest[5:8]}-{rest[8:]}"


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
