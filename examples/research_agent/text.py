"""From a page to what is kept of it: main text, fragments, claims, and vectors of them."""

from __future__ import annotations

import hashlib
import math
import re

import trafilatura

DIMENSIONS = 256
_WORD = re.compile(r"[a-z]+|\d+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_STOP = frozenset(
    _WORD.findall(
        "a an and are as at be been by for from had has have in into is it its of on or that the their these this"
        " to was were which with"
    )
)


def words(text: str) -> list[str]:
    """Words that carry meaning, with the plural s cut off."""
    found = (word for word in _WORD.findall(text.lower()) if word not in _STOP)
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found]


def main_text(html: str) -> str:
    """What a reader came for: without menus, cookie notes and footers."""
    return trafilatura.extract(html, include_comments=False) or ""


def fragments_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 60]


def claims_of(text: str, most: int = 3) -> list[str]:
    """Sentences that can be checked: they name a number."""
    sentences = [one.strip() for line in text.splitlines() for one in _SENTENCE.split(line)]
    return [one for one in sentences if re.search(r"\d", one) and 30 < len(one) < 300][:most]


def embed(text: str) -> list[float]:
    """Hashed bag of words, of length one: texts that share rare words are near each other. No model to
    download."""
    vector = [0.0] * DIMENSIONS
    for word in words(text):
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest[:4], "big") % DIMENSIONS] += 1.0 if digest[4] & 1 else -1.0
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector] if length else vector


def similarity(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))


def make_id(*parts: str) -> str:
    """The same parts have the same id: what a repeated run stores is stored already."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
