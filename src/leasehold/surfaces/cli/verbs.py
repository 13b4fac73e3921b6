"""Commands from the table of verbs: ids, options, the call and its JSON come from the table; `add` sets the texts."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import Job
from leasehold.operations.arguments import Instant
from leasehold.operations.verb import VERBS, Param, Verb
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, Noun, command, extend
from leasehold.surfaces.cli.problems import Exit, complain

Text = str | Callable[[Any, Mapping[str, Any]], str]
"""The text to print: a format string, with the arguments by name and the answer as 0; or a function of both."""

COMMAND_WORDS = {
    "job.get": "jobs show",
    "job.explain": "why",
    "job.abandon": "executions abandon",
    "jobs.count": "status",
    "log.read": "jobs logs",
    "questions_of_job.list": "jobs questions",
    "pauses.list": "queues pauses",
    "leases.list": "workers leases",
    "schedule.get": "schedules show",
    "hooks.list": "webhooks hooks list",
    "hook.remove": "webhooks hooks remove",
    "slots.list": "limits slots list",
    "slot.set": "limits slots set",
    "rates.list": "limits rates list",
    "rate.set": "limits rates set",
    "rate.close": "limits rates close",
    "rate.open": "limits rates open",
    "budgets.list": "limits budgets",
    "budget.top_up": "limits top-up",
    "budget.set": "limits set-budget",
    "budget.group": "groups budget",
    "audit.list": "audit",
}
"""Commands whose words do not follow from the verb's name."""

SHARED = {
    "queue": options.Queue, "task": options.Task, "lane": options.Lane, "group": options.Group, "tag": options.Tag,
    "worker": options.Worker, "limit": options.Limit, "cursor": options.Cursor, "for": options.For,
    "until": options.Until,
}  # fmt: skip
"""Options that are the same for all verbs, by name."""
INSTANT = get_args(Instant)[0]
PLAIN = (str, int, float, bool)
METAVARS: dict[Any, str | None] = {bool: None, int: "NUMBER", INSTANT: "TIME", dict[str, Any]: "JSON"}


def place(verb: Verb[..., Any]) -> str:
    """The words of the verb's command: `job.cancel` is `jobs cancel`; reads of one job are verbs of `jobs`."""
    noun, _, word = verb.name.partition(".")
    if verb.guard == "job" and not verb.write and noun != "job":
        noun, word = "jobs", noun
    return COMMAND_WORDS.get(verb.name) or f"{noun.removesuffix('s')}s {word.replace('_', '-')}"


def add_missing(word: str, noun: Noun) -> None:
    """Add a command for every verb with an `http` line that has no command under this noun yet."""
    import leasehold.operations.operations  # noqa: F401 - it imports every module of verbs

    for verb in VERBS:
        *above, last = place(verb).split()
        if verb.http and above[:1] == [word]:
            below: Any = noun
            for one in above[1:]:
                below = below.verbs[one]
            if last not in below.verbs:
                add(below, verb)


def add(
    below: Noun,
    verb: Verb[..., Any],
    text: Text = "",
    unchanged: Text = "",
    *,
    refused: str = "",
    columns: render.Columns[Any] | None = None,
    empty: str = "none",
    prose: Sequence[str] = (),
    ids: bool = False,
    tenant: bool = True,
) -> None:
    """Add a command that calls the verb. It prints `text`; if there was nothing to do, `unchanged`, or `refused` as an
    error. `columns`, `empty`, `prose` and `ids` are for lists, as in `CommandCall.show`."""
    own = [one for one in verb.params if not one.internal]
    in_pages = any(one.name == "cursor" for one in own)

    def run(call: CommandCall, **typed: Any) -> int:
        given = {one.name: value_of(call, verb, one, typed[one.name]) for one in own}
        if verb.write:
            given["actor"] = call.actor
        answer = call.operations.call(verb, **given)
        if isinstance(answer, list) or in_pages:
            rows = _pages(call, verb, given, answer, typed["all_"]) if in_pages else answer
            shown = columns or {
                one.name.replace("_", " "): one.name for one in fields(get_args(verb.returns)[0])
            }
            call.show(rows, shown, empty=empty.format(store=call.label), prose=prose, ids=ids)
            if in_pages and given["cursor"] is not None:
                render.note(f"there are more: --cursor {given['cursor']}, or --all")
            return Exit.OK
        shown_arguments = {one.public: given[one.name] for one in own if not one.hidden}
        idle = verb.write and (answer is False or (answer is None and verb.returns is not NoneType))
        if call.as_json:
            render.emit(_facts(answer, shown_arguments) if verb.write else answer)
        elif idle and refused:
            complain(refused.format(**shown_arguments))
        else:
            print(render.clean(_sentence(verb, answer, shown_arguments, unchanged if idle else text)))
        return Exit.REFUSED if idle and refused else Exit.OK

    run.__doc__ = verb.doc + (" Exit code 4: there was nothing to do." if refused else "")
    every = [_parameter("all_", options.AllPages, False)] if in_pages else []
    extend(run, [parameter_of(verb, one) for one in own] + every)
    command(below, place(verb).split()[-1], acts=verb.write, tenant=tenant)(run)


def _pages(
    call: CommandCall, verb: Verb[..., Any], given: dict[str, Any], page: Any, everything: bool
) -> Iterator[Any]:
    """The rows of a page; with `everything`, of all later pages too. Leaves the next cursor in `given`."""
    while True:
        yield from next(found for one in fields(page) if isinstance(found := getattr(page, one.name), list))
        given["cursor"] = page.next
        if page.next is None or not everything:
            return
        page = call.operations.call(verb, **given)


def _facts(answer: Any, arguments: Mapping[str, Any]) -> Any:
    """The value that --json prints: the answer; if that is None or a bool, the arguments with it."""
    if answer is not None and not isinstance(answer, bool):
        return answer
    typed = {name: value for name, value in arguments.items() if value is not None}
    return typed if answer is None else {**typed, "changed": answer}


def _sentence(verb: Verb[..., Any], answer: Any, arguments: Mapping[str, Any], text: Text) -> str:
    if callable(text):
        return text(answer, arguments)
    if text:
        return text.format(answer, **arguments)
    if isinstance(answer, Job):
        return f"{answer.id} {answer.state}"
    if not verb.write and answer is None:
        return "none"
    if answer is None or isinstance(answer, bool):
        about = "" if verb.target is None else f" {arguments[verb.target.public]}"
        return f"{verb.name}{about}: {'nothing to do' if answer is False else 'done'}"
    return "\n".join(render.field_lines(render.plain(answer)))


def parameter_of(verb: Verb[..., Any], one: Param, *, as_option: bool = False) -> inspect.Parameter:
    """The parameter for typer: an argument if it is required, else an option. `as_option`: always an option that may be
    left out."""
    is_argument = one.required and not as_option
    if verb.guard == "job" and one is verb.target:
        return _parameter(one.name, options.JobId)
    kind, help = one.kind, None if one.info is None else one.info.description
    metavar = METAVARS.get(kind, "TEXT")
    if get_origin(kind) is Literal:
        help, metavar = f"{', '.join(get_args(kind)[:-1])} or {get_args(kind)[-1]}.", one.public.upper()
    elif one.public in SHARED and not one.required:
        return _parameter(one.name, SHARED[one.public], one.default)
    if kind is INSTANT:
        help = f"{help or 'Until when.'} Such as 2h, from now, or 2026-10-12T08:00."
    plain: Any = kind if kind in PLAIN else list[str] if _is_amounts(kind) else str
    if is_argument:
        help = f"The {verb.name.partition('.')[0]}'s name." if one.name == "name" else help
        help = f"{help} JSON, or else text; '-' reads it from stdin, for secrets." if kind is Any else help
        metavar = "UNIT=AMOUNT" if _is_amounts(kind) else one.public.upper()
        return _parameter(one.name, Annotated[plain, typer.Argument(metavar=metavar, help=help)])
    flags = (f"--{one.public.replace('_', '-')}", *(["-s"] if one.public == "state" else []))
    option = typer.Option(*flags, help=help, metavar=metavar)
    default = None if one.required else one.default
    return _parameter(one.name, Annotated[plain | None if default is None else plain, option], default)


def _parameter(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _is_amounts(kind: Any) -> bool:
    return get_origin(kind) is dict and get_args(kind)[1] is not Any


def value_of(call: CommandCall, verb: Verb[..., Any], one: Param, typed: Any) -> Any:
    """The argument for the verb, from the typed text."""
    if verb.guard == "job" and one is verb.target:
        return call.operations.find_id(typed)
    kind = one.kind
    if isinstance(typed, list) and _is_amounts(kind):
        return dict(map(_amount, typed))
    if not isinstance(typed, str):
        return typed
    if kind is INSTANT:
        return instant(typed, one.public, call.operations.now)
    if get_origin(kind) is dict:
        return json_object(typed, one.public)
    return _json_or_text(typed) if kind is Any else typed


def instant(text: str, field: str, now: Callable[[], datetime], *, ago: bool = False) -> datetime:
    """The time from text: an instant, in local time without a time zone, as in our lists; or a duration from now, or
    ago. `now` reads the database's clock, only for a duration."""
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone()
    try:
        span = timedelta(seconds=seconds(text, field))
        return now() - span if ago else now() + span
    except (InvalidInput, OverflowError):
        remedy = f"say how long {'ago' if ago else 'from now'}, such as 2h, or when: 2026-10-12T08:00"
        raise InvalidInput(field, f"{text!r} is not a time", remedy) from None


def json_object(text: str, field: str) -> dict[str, Any]:
    """The object from JSON text; '-' reads the text from stdin."""
    try:
        found = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise InvalidInput(field, f"is not JSON ({error})", 'give an object, such as {"day": 1}') from None
    if not isinstance(found, dict):
        raise InvalidInput(field, "is not an object", 'give an object, such as {"day": 1}')
    return found


def _json_or_text(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _amount(text: str) -> tuple[str, int | None]:
    """Split UNIT=AMOUNT; the amount `null` removes a limit."""
    unit, _, amount = text.partition("=")
    try:
        return unit, None if amount == "null" else int(amount.replace("_", "").replace(",", ""))
    except ValueError:
        raise InvalidInput("amount", f"{text!r} is not UNIT=AMOUNT", "write tokens=50000") from None
