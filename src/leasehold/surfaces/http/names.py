"""Path parameters: ids, and the names of groups, slots, rates and schedules, which may contain slashes."""

from __future__ import annotations

from starlette.convertors import StringConvertor, register_url_convertor

NAME, ID = "leasehold_name", "leasehold_id"
"""The names of the convertors in route paths."""

VERBS = ("budget", "close", "open", "pause", "release", "resume", "run", "stop")


class _Name(StringConvertor):
    """Any text that does not end with a verb: `/v1/groups/a/stop` is the stop of `a`, not the group `a/stop`."""

    regex = ".*" + "".join(f"(?<!/{verb})" for verb in VERBS)


class _Id(StringConvertor):
    """Any text but the words that are routes of their own."""

    regex = "(?!(?:batch|bulk)$)[^/]+"


register_url_convertor(ID, _Id())
register_url_convertor(NAME, _Name())
