"""The GMA_* settings, read from the environment once, when the application is imported."""

from __future__ import annotations

import os
from dataclasses import dataclass


def _number(name: str, default: float) -> float:
    return float(os.environ.get(name) or default)


@dataclass
class Settings:
    gmail_url: str = os.environ.get("GMA_GMAIL_URL", "http://127.0.0.1:8726")
    """Where Gmail's REST API is. Without Google's address this is the stand-in of `gmail_server.py`."""
    pubsub_topic: str = os.environ.get("GMA_PUBSUB_TOPIC", "projects/demo/topics/gmail")
    sync_fallback_interval_minutes: float = _number("GMA_SYNC_FALLBACK_INTERVAL_MINUTES", 15)
    sync_full_sync_interval_hours: float = _number("GMA_SYNC_FULL_SYNC_INTERVAL_HOURS", 1)
    sync_full_sync_days: int = int(_number("GMA_SYNC_FULL_SYNC_DAYS", 10))
    workers: int = int(_number("GMA_WORKERS", 3))
    """How many jobs run at once in one process."""
    retry_delay_seconds: float = _number("GMA_RETRY_DELAY_SECONDS", 0)
    """The document retries at once and asks whether it should; this adds a delay that doubles each time."""
    lease_seconds: float = _number("GMA_LEASE_SECONDS", 30)
    llm_url: str = os.environ.get("GMA_LLM_URL", "")
    """An OpenAI-compatible server (`https://…/v1`). Empty: the local rule model."""
    llm_model: str = os.environ.get("GMA_LLM_MODEL", "gpt-4o-mini")
    llm_api_key: str = os.environ.get("GMA_LLM_API_KEY", "")


settings = Settings()
