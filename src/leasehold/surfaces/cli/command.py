"""Commands: their shared options, the app that a command works on, and its output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.nouns import ENTRIES
from leasehold.surfaces.cli.options import load_app, open_app
from leasehold.surfaces.cli.problems import Exit

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.operations.operations import Operations

Row = TypeVar("Row")
Command = Callable[..., "int | None"]
"""A function whose signature typer can read."""


class CommandCall:
    """The first argument of a command's function: the app that the command works on, its actor, and its output."""

    def __init__(
        self,
        *,
        url: str | None = None,
        schema: str = options.DEFAULT_SCHEMA,
        tenant: str | None = None,
        as_json: bool = False,
        actor: str | None = None,
        acts: bool = False,
        create: bool = False,
    ) -> None:
        """`acts`: the command takes --actor. `create`: it may make a database."""
        self.as_json = as_json
        self._url, self._schema, self._tenant, self._create = url, schema, tenant, create
        self._actor, self._acts = actor, acts
        self._open = ExitStack()

    def __enter__(self) -> CommandCall:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @cached_property
    def app(self) -> Leasehold:
        """The app, opened at the first use: so a wrong argument is reported before a missing database."""
        return self._open.enter_context(open_app(self._url, self._schema, self._tenant, create=self._create))

    def load(self, name: str) -> Leasehold:
        """The app `MODULE:APP`, for commands that need its tasks."""
        return self._open.enter_context(load_app(name, self._tenant))

    @property
    def operations(self) -> Operations:
        return self.app.__internals__.operations

    @property
    def label(self) -> str:
        """The name of the store in messages."""
        return self.app.__internals__.store.label

    @property
    def actor(self) -> str:
        """The actor that the history and the audit record for this command."""
        if not self._acts:
            raise RuntimeError("a command that names its actor is declared with acts=True")
        return options.acting(self._actor)

    def report(self, facts: object, text: str) -> None:
        """Print the outcome: a sentence, or with --json the facts."""
        if self.as_json:
            render.emit(facts)
        else:
            print(text)

    def confirm(self, question: str, needed: str, remedy: str = "there is no terminal to ask on") -> bool:
        """Ask for confirmation at the terminal. Raises InvalidInput if there is no terminal: then --yes is needed."""
        if not render.on_terminal():
            raise InvalidInput("--yes", needed, remedy)
        return typer.confirm(question, err=True)

    def show(
        self,
        rows: Iterable[Row],
        columns: render.Columns[Row],
        *,
        empty: str = "none",
        prose: Sequence[str] = (),
        ids: bool = False,
    ) -> None:
        """Print a list: a table, or with --json an array. `ids`: on a terminal the column "id" is shortened."""
        short = self.operations.short_ids if ids else None
        render.show(rows, columns, as_json=self.as_json, empty=empty, prose=prose, ids=short)


class Noun(TyperGroup):
    """A noun with verbs below it. A verb is built when it is called: building all of them takes longer than most
    commands."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(name=name, help=sentence, rich_markup_mode=None)
        self.verbs: dict[str, Command | Noun] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.verbs and cmd_name not in self.commands:
            self.commands[cmd_name] = build(self.verbs[cmd_name], cmd_name)
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Run `list` for a noun alone or with options only; print the help of a noun without a list."""
        for_help = bool(args) and args[0] in ctx.help_option_names
        if not ctx.resilient_parsing and not for_help and (not args or args[0].startswith("-")):
            if "list" in self.verbs:
                args = ["list", *args]
            elif not args:
                print(ctx.get_help())
                ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.verbs:
            ctx.fail(f"no such command: {ctx.command_path} {args[0]}; it has {', '.join(self.verbs)}")
        return super().resolve_command(ctx, args)


def noun(name: str, sentence: str | None = None, *, below: Noun | None = None) -> Noun:
    """Make a noun of the top level, with its sentence from `nouns.py`, or a noun below another."""
    made = Noun(name, ENTRIES[name].sentence if sentence is None else sentence)
    if below is not None:
        below.verbs[name] = made
    return made


def build(command: Command | Noun, name: str) -> Any:
    """The click command that typer makes from a function."""
    if isinstance(command, Noun):
        return command
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(command)
    return get_command(alone)


def command(
    below: Noun | None = None,
    name: str | None = None,
    *,
    acts: bool = False,
    store: bool = True,
    tenant: bool = True,
    create: bool = False,
    json: bool = True,
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a command of a function whose first parameter is a `CommandCall`, with its own options and the shared ones.
    With `below`, the command becomes a verb of that noun.

    `acts`: the command changes something, and takes --actor. `store`: it takes --url and --schema; else it loads an app
    itself. `tenant`: it takes --tenant. `create`: it may make a database. `json`: it takes --json.
    """
    offered = {
        _option("actor", options.Actor): acts,
        _option("url", options.Url): store,
        _option("schema", options.Schema, options.DEFAULT_SCHEMA): store,
        _option("tenant", options.Tenant): tenant,
        _option("as_json", options.AsJson, False): json,
    }
    shared = [option for option, is_taken in offered.items() if is_taken]

    def extend(function: Callable[..., int | None]) -> Command:
        hints = get_type_hints(function, include_extras=True)
        _, *own = inspect.signature(function).parameters.values()
        parameters = [one.replace(annotation=hints[one.name], kind=one.KEYWORD_ONLY) for one in own] + shared

        def run(**given: Any) -> int | None:
            with CommandCall(
                acts=acts, create=create, **{one.name: given.pop(one.name) for one in shared}
            ) as call:
                return function(call, **given)

        run.__doc__ = function.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # inspect reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        if below is not None:
            below.verbs[name or function.__name__] = run
        return run

    return extend


def extend(function: Callable[..., Any], more: Iterable[inspect.Parameter]) -> None:
    """Replace the `**` parameter of a function by the given parameters, for typer to read."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in more]
    function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined] # inspect reads it
    function.__annotations__ |= {one.name: one.annotation for one in added}


def _option(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
