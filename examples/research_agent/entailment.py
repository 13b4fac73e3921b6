"""Does a fragment support a claim? An interface, and a lexical scorer behind it that needs no model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from .text import words

Relation = Literal["supports", "refutes", "neutral"]
_NEGATION = re.compile(r"\b(not|no|never|none|cannot|without|false|wrongly)\b|n't\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Judgment:
    relation: Relation
    score: float


class Entailment(Protocol):
    """What a language model would be put behind."""

    def judge(self, premise: str, hypothesis: str) -> Judgment: ...


class LexicalEntailment:
    """The sentence of the premise that covers most of the claim's words decides. If it names the same things but
    denies it, or tells other numbers, it refutes."""

    def __init__(self, enough: float = 0.6) -> None:
        self._enough = enough

    def judge(self, premise: str, hypothesis: str) -> Judgment:
        wanted = {word for word in words(hypothesis) if not word.isdigit()}
        best, score = "", 0.0
        for sentence in _SENTENCE.split(premise):
            covered = len(wanted & set(words(sentence))) / max(1, len(wanted))
            if covered > score:
                best, score = sentence, covered
        score = round(score, 3)
        if score < self._enough or not _names(hypothesis) <= set(best.split()):
            return Judgment("neutral", score)
        denies = bool(_NEGATION.search(best)) != bool(_NEGATION.search(hypothesis))
        differs = _numbers(best) != _numbers(hypothesis)
        if denies and differs:
            return Judgment("neutral", score)  # denies something else
        return Judgment("refutes" if denies or differs else "supports", score)


def _names(sentence: str) -> set[str]:
    """Capitals inside of a sentence: what it is about."""
    return set(re.findall(r"(?<=\s)[A-Z][a-z]+", sentence))


def _numbers(sentence: str) -> set[str]:
    return set(re.findall(r"\d+", sentence))
