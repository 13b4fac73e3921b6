"""What may be set from outside. The names are the document's where it has one."""

from __future__ import annotations

import os

SLOT_LIMITS = {
    "NETWORK_CLIENT": int(os.environ.get("NETWORK_CLIENT_SLOTS", "4")),
    "CPU_NLP": int(os.environ.get("CPU_NLP_SLOTS", "8")),
    "BROWSER_SERP": int(os.environ.get("BROWSER_SERP_TABS", "2")),  # the TabPool
}

PRIORITIES = {"high": 10, "medium": 50, "low": 90}
"""Lower goes first, as in the document: a VERIFY_NLI (45) goes before what is `medium`, and after what
is `high`."""
VERIFY_NLI_PRIORITY = 45
CITATION_GRAPH_PRIORITY = 50
EMBED_PRIORITY = 40
NLI_PRIORITY = 55

BUDGET_PAGES = int(os.environ.get("BUDGET_PAGES", "6"))
"""Pages of one query, if `options.budget_pages` does not say."""
CITATION_GRAPH_BUDGET_PAGES = int(os.environ.get("CITATION_GRAPH_BUDGET_PAGES", "10"))

ENGINE_POLICY = {
    "duckduckgo": "20/s",
    "mojeek": "20/s",
    "google": "5/s",
    "brave": "10/s",
    "ecosia": "10/s",
    "startpage": "5/s",
    "bing": "10/s",
}
"""How often each engine may be asked, by all workers together."""
ACADEMIC_RATES = {"semantic_scholar": "20/s", "openalex": "20/s"}
DOMAIN_RATE = os.environ.get("DOMAIN_RATE", "20/s")
"""Of every host that turns up, unless somebody has set another with `leasehold limits rates set domain:HOST`."""

RESEARCH_PROXY = os.environ.get("RESEARCH_PROXY")
"""The way to the web: the loopback web of this example is a proxy. None: the web itself."""
FETCH_TIMEOUT = float(os.environ.get("FETCH_TIMEOUT", "10"))
LEASE = os.environ.get("RESEARCH_LEASE", "30s")
SWEEP = float(os.environ.get("RESEARCH_SWEEP", "5"))
"""Seconds. A server that was killed is noticed within lease + sweep."""

GRACEFUL_WAIT = 30.0
FULL_WAIT = 0.5
