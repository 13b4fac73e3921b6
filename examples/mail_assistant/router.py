"""Which way a new message goes: the pipeline (classify, draft) or an agent with tools."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from examples.mail_assistant.gmail import Mail


@dataclass(frozen=True)
class Route:
    to: str
    """"pipeline" or "agent"."""
    profile: str = ""
    rule: str = ""


def route(mail: Mail, rules: list[dict[str, Any]]) -> Route:
    """The first rule that matches decides: {"name": …, "sender": "*@shop.example", "profile": …}."""
    for rule in rules:
        if fnmatch(mail.sender, rule["sender"]):
            return Route("agent", rule["profile"], rule["name"])
    return Route("pipeline")
