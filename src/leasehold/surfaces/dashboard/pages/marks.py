"""Digests of names for HTML ids: a name can be any text, an id cannot."""

from __future__ import annotations

import hashlib


def mark(*names: object) -> str:
    text = "\0".join(map(str, names))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
