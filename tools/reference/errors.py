"""errors.md: every error with its sentence, its remedy, and what each surface makes of it."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

import leasehold.errors
from leasehold.errors import InvalidInput, LeaseholdError
from leasehold.surfaces.cli.problems import code_of
from leasehold.surfaces.http.problems import answer_to
from leasehold.surfaces.mcp.server import protocol_error
from tools.reference.source import table

HEAD = """# Errors

Every error that Leasehold raises on purpose, in `leasehold.errors`. An error carries its facts as attributes, and its
text says what would help. Catch a whole family by the class above it.

Over HTTP an error is a problem (RFC 9457): a status, and a `type` of `urn:leasehold:problem:` and the code below. On
the command line it is one line on stderr and an [exit code](cli.md#exit-codes). In an MCP tool it is a result with
`isError` and the error's text, for the model to read; where MCP has no result, such as for tasks, it is a JSON-RPC
error with the code below. Errors of the database keep their details out of HTTP and MCP, and in the server's log.
"""


def errors_page() -> str:
    lines = [HEAD, "## Codes", "", *_codes(), ""]
    for name in _by_family():
        error = getattr(leasehold.errors, name)
        sentence, remedy = reported(error)
        lines += [f"## {name}", "", sentence, ""]
        lines += [f"- Remedy: {remedy}", f"- Is a: {_bases(error)}"]
        facts = [one for one in inspect.signature(error.__init__).parameters if one in _facts(error)]
        lines += [f"- Attributes: {', '.join(f'`{one}`' for one in facts)}", ""] if facts else [""]
    return "\n".join(lines).rstrip() + "\n"


def reported(error: type[LeaseholdError]) -> tuple[str, str]:
    """Its sentence and its remedy, from its docstring."""
    sentence, _, remedy = (inspect.cleandoc(error.__doc__ or "")).partition("\n\nRemedy: ")
    return " ".join(sentence.split()), " ".join(remedy.split())


def _by_family() -> list[str]:
    """Each below its family, families in alphabetical order."""

    def key(name: str) -> tuple[str, ...]:
        family = [
            one.__name__ for one in getattr(leasehold.errors, name).__mro__ if issubclass(one, LeaseholdError)
        ]
        return tuple(reversed(family))

    return sorted(leasehold.errors.__all__, key=key)


def _codes() -> list[str]:
    rows = []
    logging.disable()  # the surfaces report what they hide from the caller
    try:
        for name in _by_family():
            error = example(getattr(leasehold.errors, name))
            answer = answer_to(error)
            problem = json.loads(bytes(answer.body))["code"]
            rows.append(
                [
                    f"[{name}](#{name.lower()})",
                    str(answer.status_code),
                    f"`{problem}`",
                    str(code_of(error).value),
                    str(protocol_error(error).error.code),
                ]
            )
    finally:
        logging.disable(logging.NOTSET)
    return table(["Error", "HTTP status", "Problem", "Exit code", "MCP code"], rows)


def example(error: type[LeaseholdError]) -> LeaseholdError:
    """One of its kind, with made-up facts: the surfaces are asked what they make of it."""
    if "__init__" not in vars(error) and not issubclass(error, InvalidInput):
        return error("x")
    made_up: dict[str, Any] = {"int": 1, "float": 1.0, "Mapping[str, str]": {}, "Sequence[RunningJob]": []}
    parameters = list(inspect.signature(error.__init__).parameters.values())[1:]
    return error(*(made_up.get(one.annotation, "x") for one in parameters if one.default is one.empty))


def _bases(error: type) -> str:
    named = [f"[{one.__name__}](#{one.__name__.lower()})" if issubclass(one, LeaseholdError) else f"`{one.__name__}`"
             for one in error.__bases__ if one.__name__ != "Portable"]  # fmt: skip
    return ", ".join(named)


def _facts(error: type[LeaseholdError]) -> set[str]:
    return set(vars(example(error)))
