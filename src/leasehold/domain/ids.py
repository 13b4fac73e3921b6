"""Job ids: UUIDv7, made by the producer, in time order."""

from __future__ import annotations

import uuid

from leasehold.domain.errors import InvalidInput

LOWEST_ID = "00000000-0000-0000-0000-000000000000"


def make_id(milliseconds: int, randomness: bytes) -> str:
    """A UUIDv7 from a wall-clock time and ten random bytes. The random part is full: ids cannot be guessed."""
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(randomness, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


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
