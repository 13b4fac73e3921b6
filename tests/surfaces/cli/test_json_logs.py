"""`--log-json`: every line that a handler's code logs, by any logger, says under which lease, and in which span."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest

from leasehold import Leasehold, Retry
from tests.surfaces.cli.conftest import Cli, read_until

MODULE = "talking"
TASKS = """
import asyncio, logging, os
from opentelemetry.sdk.trace import TracerProvider
from leasehold import Leasehold
from leasehold.contrib.opentelemetry import instrument

app = Leasehold(schema=os.environ.get("LEASEHOLD_SCHEMA", "leasehold"))
provider = TracerProvider()
if "TRACED" in os.environ:
    instrument(app, tracer_provider=provider)

@app.task
async def on_loop() -> None:
    logging.info("on the root")
    await asyncio.to_thread(logging.getLogger("a.library").warning, "in a library")
    raise ValueError("again")

@app.task
def in_thread() -> None:
    with provider.get_tracer("own").start_as_current_span("own"):
        logging.getLogger("shop").info("in a thread")

logging.getLogger("shop").warning("outside")
"""


@pytest.fixture
def talking(cli: Cli) -> Cli:
    cli.folder.joinpath(f"{MODULE}.py").write_text(TASKS)
    return cli


def enqueued(cli: Cli) -> tuple[str, str]:
    url, schema = cli.environment["LEASEHOLD_URL"], cli.environment["LEASEHOLD_SCHEMA"]
    with Leasehold(url, schema=schema) as app:

        @app.task(retry=Retry(max_attempts=2, backoff=0))
        def on_loop() -> None: ...

        @app.task
        def in_thread() -> None: ...

        return on_loop.enqueue().id, in_thread.enqueue().id


def read(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def said(lines: list[dict[str, Any]], message: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["message"] == message]


def check_fields(lines: list[dict[str, Any]], on_loop: str, in_thread: str) -> None:
    for message, logger in (("on the root", "root"), ("in a library", "a.library")):
        found = said(lines, message)
        assert [line["logger"] for line in found] == [logger] * 2
        assert [(line["job"], line["task"], line["queue"]) for line in found] == [
            (on_loop, "on_loop", "default")
        ] * 2
        assert [(line["attempt"], line["lease"]) for line in found] == [(1, 1), (2, 2)]
    (line,) = said(lines, "in a thread")
    assert (line["job"], line["task"], line["attempt"], line["lease"]) == (in_thread, "in_thread", 1, 1)
    # What the worker says about a job has them, too.
    (failed,) = (line for line in lines if "(on_loop): attempt 2 failed" in line["message"])
    assert (failed["job"], failed["attempt"], failed["lease"], failed["level"]) == (on_loop, 2, 2, "error")
    (outside,) = said(lines, "outside")
    assert not {"job", "lease", "trace_id", "span_id"} & outside.keys()


def test_a_worker_says_under_which_lease_each_line_was_logged(talking: Cli):
    jobs = enqueued(talking)
    answer = talking("worker", MODULE, "--burst", "--log-json")
    assert answer.code == 0, answer.err
    lines = read(answer.err)
    check_fields(lines, *jobs)
    assert not any("span_id" in line for line in lines if line["message"] != "in a thread")
    (own,) = said(lines, "in a thread")
    assert re.fullmatch("[0-9a-f]{32}", own["trace_id"])
    assert re.fullmatch("[0-9a-f]{16}", own["span_id"])


def test_with_opentelemetry_lines_carry_the_span_of_their_attempt(talking: Cli):
    jobs = enqueued(talking)
    answer = talking("worker", MODULE, "--burst", "--log-json", TRACED="1")
    lines = read(answer.err)
    check_fields(lines, *jobs)
    root, library = said(lines, "on the root"), said(lines, "in a library")
    assert [line["span_id"] for line in root] == [line["span_id"] for line in library]
    assert len({line["trace_id"] for line in root}) == 2, "an attempt, a trace"
    (reported,) = (line for line in lines if "(on_loop): attempt 2 failed" in line["message"])
    assert "span_id" not in reported, "it is said when the attempt is over"


def test_a_worker_beside_the_http_api_says_it_too(talking: Cli):
    jobs = enqueued(talking)
    process = talking.start("serve", f"{MODULE}:app", "--port", "0", "--with-worker", "--log-json")
    seen = ""
    for text in ("(on_loop): attempt 2 failed", "(in_thread): attempt 1 succeeded"):  # in any order
        seen += "" if text in seen else read_until(process, "stderr", text)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=50)
    assert process.returncode == 0, rest
    check_fields(read(seen + rest), *jobs)
