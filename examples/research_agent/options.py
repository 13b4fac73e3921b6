"""What a caller may ask for, and what comes back, in the document's words."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .settings import BUDGET_PAGES, CITATION_GRAPH_BUDGET_PAGES

Engine = Literal["duckduckgo", "mojeek", "google", "brave", "ecosia", "startpage", "bing"]
AcademicApi = Literal["semantic_scholar", "openalex"]
Scope = Literal["all_jobs", "target_queue_only"]
Mode = Literal["graceful", "immediate", "full"]
Reason = Literal["session_completed", "budget_exhausted", "user_cancelled"]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    priority: Literal["high", "medium", "low"] = "medium"
    budget_pages: int = Field(default=BUDGET_PAGES, ge=1, description="Most pages of one query.")
    serp_engines: list[Engine] | None = Field(default=None, description="Omit for auto-selection.")
    academic_apis: list[AcademicApi] = Field(default=["semantic_scholar", "openalex"])
    citation_graph_budget_pages: int = Field(default=CITATION_GRAPH_BUDGET_PAGES, ge=0)
    task_budget_pages: int | None = Field(
        default=None, ge=1, description="Most pages of the whole task; a higher number raises it."
    )


class AuthAnswer(BaseModel):
    """What a human gives back for a CAPTCHA."""

    solution: str = ""
    cancelled: bool = False


class TargetResult(BaseModel):
    target: str
    pages: list[str] = []
    papers: list[str] = []
    errors: list[str] = []
    budget_exhausted: bool = False
