"""What is kept of the research. Every row carries its task and the job that found it, so that what a
cancelled job has left can be told apart. Ids come from the contents: storing a second time changes
nothing."""

from __future__ import annotations

import json
from typing import Any

from .database import execute, execute_many
from .engines import FoundPaper
from .fetching import Fetched, domain_of
from .text import claims_of, fragments_of, make_id


def store_page(connection: Any, task_id: str, job_id: str, page: Fetched) -> None:
    execute(
        connection,
        "INSERT INTO pages (task_id, url, job_id, domain, title, text) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (task_id, page.url, job_id, domain_of(page.url), page.title, page.text),
    )
    _store_text(connection, task_id, job_id, page.url, page.text)


def store_papers(connection: Any, task_id: str, job_id: str, papers: list[FoundPaper]) -> None:
    for paper in papers:
        execute(
            connection,
            "INSERT INTO papers (task_id, paper_id, job_id, title, url) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (task_id, paper.paper_id, job_id, paper.title, paper.url),
        )
        _store_text(connection, task_id, job_id, paper.url, paper.abstract)


def _store_text(connection: Any, task_id: str, job_id: str, url: str, text: str) -> None:
    for table, name, texts in (
        ("fragments", "fragment_id", fragments_of(text)),
        ("claims", "claim_id", claims_of(text)),
    ):
        for one in texts:
            execute(
                connection,
                f"INSERT INTO {table} ({name}, task_id, job_id, url, domain, text) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (make_id(task_id, url, one), task_id, job_id, url, domain_of(url), one),
            )


def store_embeddings(connection: Any, vectors: list[tuple[str, list[float]]]) -> None:
    rows = [(json.dumps([round(x, 5) for x in vector]), fragment_id) for fragment_id, vector in vectors]
    execute_many(connection, "UPDATE fragments SET embedding = ? WHERE fragment_id = ?", rows)


def store_edges(connection: Any, task_id: str, job_id: str, edges: list[tuple[str, str, str, float]]) -> None:
    """`INSERT OR IGNORE`, in the words of both databases. Sorted: jobs that store the same edges at the same time wait
    for each other in one order."""
    execute_many(
        connection,
        "INSERT INTO edges (fragment_id, claim_id, task_id, job_id, relation, score) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [
            (fragment, claim, task_id, job_id, relation, score)
            for fragment, claim, relation, score in sorted(edges)
        ],
    )


def store_citations(
    connection: Any, task_id: str, job_id: str, citing_id: str, cited: list[FoundPaper]
) -> None:
    store_papers(connection, task_id, job_id, cited)
    for paper in cited:
        execute(
            connection,
            "INSERT INTO cites (task_id, citing_id, cited_id, job_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (task_id, citing_id, paper.paper_id, job_id),
        )


def open_auth_item(connection: Any, task_id: str, job_id: str, url: str, challenge: str) -> None:
    execute(
        connection,
        "INSERT INTO auth_items (job_id, domain, task_id, url, challenge) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (job_id, domain_of(url), task_id, url, challenge),
    )


def close_auth_item(connection: Any, job_id: str, domain: str, outcome: str) -> None:
    execute(
        connection,
        "UPDATE auth_items SET outcome = ? WHERE job_id = ? AND domain = ? AND outcome IS NULL",
        (outcome, job_id, domain),
    )
