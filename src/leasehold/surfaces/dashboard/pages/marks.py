"""A name's own mark, for the ids of a page: names may have anything in them, ids may not."""

from __future__ import annotations

import hashlib


def mark(*names: object) -> str:
    text = "\0".join(map(str, names))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
