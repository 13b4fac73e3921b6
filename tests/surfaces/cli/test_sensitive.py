"""`sensitive=` arguments: given to the handler, and shown to nobody else, by no command and in no text."""

from __future__ import annotations

import logging
from typing import Annotated

import pytest
from pydantic import Field

from leasehold import Context, Leasehold, Retry
from leasehold.errors import InvalidInput
from leasehold.surfaces.cli.problems import Exit
from tests.workers import burst

SECRET = "sk-'very\"secret\\zebra"
SHOWN = "for everybody to see"


@pytest.fixture
def given(app):
    """What the handlers were called with."""
    found = []

    @app.task(sensitive=("api_key", "more"), retry=Retry(max_attempts=1))
    def call_api(api_key: Annotated[str, Field(alias="apiKey")], url: str, more: list[str] | None = None):
        found.append((api_key, url))
        raise ValueError(f"{url} refused {api_key!r} and {api_key} {more}")

    @app.task(sensitive=("api_key",))
    async def log_it(ctx: Context, api_key: str):
        found.append((api_key, None))
        ctx.log(f"calling with {api_key}")

    return found


def enqueue(app: Leasehold, name: str, **arguments):
    return app.__internals__.named_task(name, {}).enqueue(**arguments)


def clear(*texts: object) -> bool:
    """In no spelling, and not in part."""
    return not any("secret" in str(text) or "zebra" in str(text) for text in texts)


def test_no_command_shows_it_and_the_handler_gets_it(app, given, here, caplog, backend):
    caplog.set_level(logging.DEBUG)
    job = enqueue(app, "call_api", api_key=SECRET, url=SHOWN, more=["another secret"])
    commands = (
        *([*verb.split(), job.id] for verb in ("jobs show", "why", "jobs result")),
        *(
            [noun]
            for noun in (
                "jobs",
                "queues",
                "tasks",
                "workers",
                "lanes",
                "schedules",
                "questions",
                "status",
                "doctor",
            )
        ),
    )
    before = [here(*command, *more) for command in commands for more in ([], ["--json"])]
    burst(app)
    after = [here(*command, *more) for command in commands for more in ([], ["--json"])]
    for answer in before + after:
        assert answer.code != Exit.USAGE, answer.err
        assert clear(answer.out, answer.err), answer.out + answer.err
    assert SHOWN in before[0].out
    assert here("jobs", "show", job.id, "--json").json["args"] == {
        "apiKey": "[hidden]",
        "url": SHOWN,
        "more": "[hidden]",
    }
    assert given == [(SECRET, SHOWN)]
    assert f"{SHOWN} refused" in job.refresh().error
    assert job.error.count("[hidden]") >= 3
    assert clear(
        job.error, job.args, job.attempts(), job.history(), job.explain(), repr(job), repr(job.__row__)
    )
    assert clear(caplog.text)
    # With rights on the database itself it can be read: the page says so.
    assert [row for row in backend.query("SELECT error, reason FROM leasehold.jobs") if not clear(*row)] == []


def test_resume_and_retry_keep_the_values(app, given, here):
    job = enqueue(app, "call_api", api_key=SECRET, url="a")
    burst(app)
    assert here("jobs", "resume", job.id, "--json").code == 0
    burst(app)
    again = here("jobs", "retry", job.id, "--json")
    assert clear(again.out)
    burst(app)
    job.refresh().resume(args={"api_key": "another secret", "url": "b"})
    assert clear(job.args)
    burst(app)
    assert given == [(SECRET, "a")] * 3 + [("another secret", "b")]


def test_a_log_tail_and_a_stop_do_not_show_it(app, given, here):
    job = enqueue(app, "log_it", api_key=SECRET)
    for verb in ("pause", "resume"):
        assert clear(here("jobs", verb, job.id, "--json").out)
    burst(app)
    shown = here("jobs", "show", job.id)
    assert "calling with [hidden]" in shown.out
    assert clear(shown.out, here("jobs", "show", job.id, "--json").out)
    assert given == [(SECRET, None)]


def test_what_is_typed_is_not_told_again(cli):
    cli.folder.joinpath("cli_tasks.py").write_text(
        cli.folder.joinpath("cli_tasks.py").read_text()
        + "\n@app.task(sensitive=('key',), max_running=1)\ndef secretive(key: str): return len(key)\n"
    )
    for verb in ("enqueue", "run-now"):
        for more in ([], ["--json"]):
            answer = cli("jobs", verb, "cli_tasks", "secretive", '{"key": "my secret"}', *more)
            assert answer.code == Exit.OK, answer.err
            assert clear(answer.out, answer.err)


def test_names_that_are_no_arguments_are_refused_where_they_are_written(app):
    for wrong in (("nothing",), "key", ["key"]):
        with pytest.raises(InvalidInput, match="sensitive"):

            @app.task(sensitive=wrong)
            def other(key: str): ...


@pytest.mark.parametrize(
    "settings",
    [
        {"lane": "{key}"},
        {"unique": "a-{key}"},
        {"tags": ("of:{key}",)},
        {"rate": "{key}"},
        {"slots": {"{key}": 1}},
    ],
)
def test_a_name_made_from_a_sensitive_argument_is_refused(app, settings):
    with pytest.raises(InvalidInput, match="would show 'key'"):

        @app.task(sensitive=("key",), **settings)
        def other(key: str): ...


def test_a_call_cannot_say_otherwise(app, given):
    with pytest.raises(InvalidInput, match="sensitive"):
        app.__internals__.named_task("call_api", {"sensitive": ()})


def test_a_schedule_that_would_show_one_is_refused(app, given):
    with pytest.raises(InvalidInput, match="sensitive"):
        app.schedules.set("nightly", "log_it", {"api_key": SECRET}, every=3600)


def test_a_plain_job_carries_nothing_of_it(app, given, backend):
    enqueue(app, "work", n=1)
    enqueue(app, "log_it", api_key=SECRET)
    found = dict(backend.query("SELECT task, policy IS NULL FROM leasehold.job"))
    assert found == {"work": True, "log_it": False}
