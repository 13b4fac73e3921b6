"""Job ids: UUIDv7, made by the producer, in time order."""

from __future__ import annotations

import uuid

from leasehold.domain.errors import InvalidInput

LOWEST_ID = "00000000-0000-0000-0000-000000000000"
HIGHEST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
SHORTEST_PREFIX = 6
"""Fewest digits of an id that a person has to give."""
SHORTEST_SHOWN = 13
"""Fewest characters of an id that are shown: its time, to the millisecond."""


_VARIANTS = dict(zip("0123456789abcdef", "8888" + "9999" + "aaaa" + "bbbb", strict=True))


def make_id(milliseconds: int, randomness: bytes) -> str:
    """Make a UUIDv7 from a wall-clock time and ten random bytes. All random bits are used: ids cannot be guessed."""
    return make_ids(milliseconds, randomness)[0]


def make_ids(milliseconds: int, randomness: bytes) -> list[str]:
    """Make one id for each ten random bytes."""
    time, rest = f"{milliseconds & (1 << 48) - 1:012x}", randomness.hex()
    begin = f"{time[:8]}-{time[8:]}-7"
    return [
        f"{begin}{rest[n + 1 : n + 4]}-{_VARIANTS[rest[n + 4]]}{rest[n + 5 : n + 8]}-{rest[n + 8 : n + 20]}"
        for n in range(0, len(rest), 20)
    ]


def checked_id(text: object, field: str = "id") -> str:
    """Return the id in its canonical spelling, or raise an error that names the field."""
    if isinstance(text, uuid.UUID):
        return str(text)
    if isinstance(text, str):
        try:
            return str(uuid.UUID(text))
        except ValueError:
            pass
    raise InvalidInput(field, f"{text!r} is not a job id", "use the id that enqueue returned (a UUID)")


def id_prefix(text: str) -> str | None:
    """Return the beginning of an id in canonical spelling; None: no id begins like this."""
    digits = text.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return None
    if len(digits) < SHORTEST_PREFIX:
        raise InvalidInput("id", f"{text!r} is too short", f"give at least {SHORTEST_PREFIX} digits of it")
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(part for part in parts if part)


def range_of(prefix: str) -> tuple[str, str]:
    """Return the lowest and the highest id with this prefix."""
    return prefix + LOWEST_ID[len(prefix) :], prefix + HIGHEST_ID[len(prefix) :]


def shortened(job_id: str, *others: str | None) -> str:
    """Shorten an id, keeping enough to tell it from its neighbours in id order, and so from all other ids."""
    length = SHORTEST_SHOWN
    for other in others:
        while other is not None and length < len(job_id) and other.startswith(job_id[:length]):
            length += 1
    return job_id[: length + 1] if job_id[:length].endswith("-") else job_id[:length]
