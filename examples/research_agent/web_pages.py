"""The contents of the loopback web: some three hundred pages, papers and search results, the same in
every run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SITES = ("geology", "rivers", "almanac", "museum", "chronicle", "fieldnotes", "encyclopedia", "review")
PLACES = (
    "Orla",
    "Tarn",
    "Velm",
    "Skarn",
    "Luma",
    "Brask",
    "Ister",
    "Quell",
    "Nordal",
    "Fenwick",
    "Hask",
    "Mirel",
)
SUBJECTS = (
    ("basalt aquifers", "store {n} percent of the annual rainfall"),
    ("glacier meltwater", "feeds {n} percent of the summer flow"),
    ("peat bogs", "hold {n} kilograms of carbon per square metre"),
)
FILLER = (
    "Surveyors walked the valley for two seasons and wrote down what they saw.",
    "The oldest maps of the area are kept in the town hall and can be seen on request.",
    "Farmers, anglers and engineers read the same gauges and draw different conclusions.",
    "A later expedition repeated the measurements with better instruments.",
)


@dataclass(frozen=True)
class Page:
    url: str
    title: str
    paragraphs: tuple[str, ...]
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    paper_id: str
    title: str
    abstract: str
    url: str
    cites: tuple[str, ...] = ()


@dataclass
class Contents:
    pages: dict[str, Page] = field(default_factory=dict)
    papers: dict[str, Paper] = field(default_factory=dict)


def topic(place: str, subject: str) -> str:
    return f"{subject} of {place}"


def make_contents() -> Contents:
    chance = random.Random(18)
    made = Contents()
    topics = [(place, subject, tells) for place in PLACES for subject, tells in SUBJECTS]
    for number, (place, subject, tells) in enumerate(topics):
        truth = chance.randint(11, 89)
        slug = f"{place}-{subject}".lower().replace(" ", "-")
        urls = [f"http://{site}.example/{slug}" for site in SITES]
        for turn, url in enumerate(urls):
            made.pages[url] = Page(
                url,
                f"{subject} in the {place} valley".capitalize(),
                (_statement(place, subject, tells, truth, turn), *chance.sample(FILLER, 2)),
                (urls[(turn + 1) % len(urls)],),
            )
        for turn in (0, 1):
            paper_id = f"P{2 * number + turn:03}"
            near = f"P{2 * number + 1 - turn:03}"
            far = f"P{(2 * number + 2 + turn) % (2 * len(topics)):03}"
            made.papers[paper_id] = Paper(
                paper_id,
                f"{subject} in the {place} valley, part {turn + 1}",
                _statement(place, subject, tells, truth, turn) + " " + FILLER[turn],
                f"http://journal-{turn + 1}.example/{paper_id}",
                (near, far),
            )
    return made


def _statement(place: str, subject: str, tells: str, truth: int, turn: int) -> str:
    """Every site tells it in words of its own, and one of them denies it."""
    told = tells.format(n=truth)
    openings = (
        f"In the {place} valley, {subject} {told}.",
        f"Measurements show that {subject} in the {place} valley {told}.",
        f"According to the survey, {subject} of the {place} valley {told} in most years.",
        f"It was wrongly reported that {subject} in the {place} valley {told}.",
    )
    return f"{openings[turn % len(openings)]} {FILLER[turn % len(FILLER)]}"
