"""cli.md: every command under its noun, with its sentence, arguments and options, and what the exit codes mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup

from leasehold.surfaces.cli.main import command as all_commands
from leasehold.surfaces.cli.problems import Exit
from tools.reference.source import field_docs, table

HEAD = """# Command line

Every command of `leasehold`, with its arguments and options. `leasehold COMMAND --help` prints the same. Commands
stand under their noun: `leasehold jobs cancel ID`. A noun alone lists: `leasehold jobs` is `leasehold jobs list`.

Which database a command uses: `--url` or `LEASEHOLD_URL`; else the app that `LEASEHOLD_APP` names; else
`sqlite:///leasehold.db`. With `--json`, stdout is always JSON, also for errors.
"""


def cli_page() -> str:
    lines = [HEAD, "## Exit codes", "", *_exit_codes(), ""]
    for name, found, context in commands(all_commands()):
        lines += [f"## leasehold {name}", "", _help(found), ""]
        usage = " ".join([f"leasehold {name}", *found.collect_usage_pieces(context)])
        lines += ["```text", usage, "```", ""]
        if isinstance(found, TyperGroup):
            lines += [_verbs(name, found, context), ""]
            continue
        rows = [_row(one) for one in found.params if one.name != "help" and not getattr(one, "hidden", False)]
        lines += [*table(["Argument or option", "Default", "Meaning"], rows), ""] if rows else []
    return "\n".join(lines).rstrip() + "\n"


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every noun and every command by its full name, with a context to print its usage in."""
    context = group.context_class(group, info_name=f"leasehold {before}".strip())
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        path = f"{before}{name}"
        yield path, command, command.context_class(command, info_name=path)
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{path} ")


def _verbs(name: str, group: TyperGroup, context: Any) -> str:
    verbs = group.list_commands(context)
    links = ", ".join(f"[{verb}](#leasehold-{name.replace(' ', '-')}-{verb})" for verb in verbs)
    alone = f" `leasehold {name}` alone is `leasehold {name} list`." if "list" in verbs else ""
    return f"Commands: {links}.{alone}"


def _exit_codes() -> list[str]:
    docs = field_docs(Exit)
    return table(["Code", "Meaning"], [[str(code.value), docs[code.name]] for code in Exit])


def _help(command: Any) -> str:
    """Paragraphs as they are; what typer keeps from being rewrapped, and its marks, are for terminals."""
    return "\n".join(line.strip() for line in (command.help or "").replace("\b", "").splitlines()).strip()


def _row(parameter: Any) -> list[str]:
    is_argument = parameter.param_type_name == "argument"
    if is_argument:
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        spellings = [*parameter.opts, *parameter.secondary_opts]
        value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
        name = ", ".join(f"`{one}`" for one in [*spellings[:-1], spellings[-1] + value])
    text = " ".join((parameter.help or "").split())
    if parameter.envvar:
        text += f" Environment: `{parameter.envvar}`."
    if parameter.required:
        text += " Required."
    return [name, _default(parameter), text.strip().replace("|", "or")]


def _default(parameter: Any) -> str:
    """A flag that is off, an empty text and a value that is made when it is needed are not worth a word."""
    value = parameter.default
    is_shown = isinstance(value, str | int | float) and value is not False and value != ""
    return f"`{value}`" if is_shown else "–"
