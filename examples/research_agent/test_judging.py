"""What judges and finds, without any jobs."""

from __future__ import annotations

import pytest

from examples.research_agent.entailment import LexicalEntailment
from examples.research_agent.text import claims_of, embed, fragments_of, main_text, similarity
from examples.research_agent.web_pages import make_contents

CLAIM = "In the Orla valley, basalt aquifers store 40 percent of the annual rainfall."


@pytest.mark.parametrize(
    ("premise", "relation"),
    [
        (
            "Measurements show that basalt aquifers in the Orla valley store 40 percent of the annual rainfall.",
            "supports",
        ),
        ("Basalt aquifers of the Orla valley do not store 40 percent of the annual rainfall.", "refutes"),
        ("Basalt aquifers in the Orla valley store 70 percent of the annual rainfall.", "refutes"),
        ("Basalt aquifers in the Tarn valley store 70 percent of the annual rainfall.", "neutral"),
        ("The oldest maps of the area are kept in the town hall.", "neutral"),
    ],
)
def test_a_premise_supports_refutes_or_says_nothing(premise: str, relation: str):
    assert LexicalEntailment().judge(f"Farmers read gauges. {premise}", CLAIM).relation == relation


def test_similar_texts_are_near_each_other():
    assert sum(x * x for x in embed(CLAIM)) == pytest.approx(1)
    assert similarity(CLAIM, "the rainfall that basalt aquifers store") > 0.5
    assert abs(similarity(CLAIM, "town hall maps on request")) < 0.3


def test_main_text_leaves_menus_and_footers_out():
    paragraphs = "".join(f"<p>{CLAIM} It was measured in two seasons, by two teams.</p>" for _ in range(3))
    text = main_text(
        f"<html><body><nav>Home</nav><article>{paragraphs}</article><footer>cookies</footer></body></html>"
    )
    assert "cookies" not in text
    assert claims_of(text)[0] == CLAIM
    assert fragments_of(text)


def test_the_web_has_a_few_hundred_pages():
    made = make_contents()
    assert len(made.pages) == 288
    assert len(made.papers) == 72
