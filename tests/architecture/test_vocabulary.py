"""Names that were replaced by the field's words, and must not come back: whole identifiers and file names, in `src`
alone: in Python, SQL, templates and scripts. What each of them is called now stands beside it."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable
from pathlib import Path

from tests.architecture.sources import PACKAGE

IDENTIFIERS = {
    "_all_whole": "_all_with_full_names",
    "_as_told": "_as_reported",
    "_asked": "_requested",
    "_asked_kinds": "_claimed_tasks",
    "_asked_stop": "_requested_stop",
    "_async_kinds": "_async_tasks",
    "_bell": "_throttle",
    "_books": "_index",
    "_check_kinds": "_check_tasks",
    "_claim_in_process": "_claim_not_external",
    "_claim_kinds": "_claim_tasks",
    "_coroutines": "_loop_tasks",
    "_count_abandoned": "_count_left_behind",
    "_drain_asked": "_drain_requested",
    "_ear": "_listener",
    "_ears": "_listeners",
    "_ears_lock": "_listeners_lock",
    "_find_kinds": "_find_tasks",
    "_find_stopped": "_find_covered_by_stop",
    "_flagged": "_request_stop",
    "_flags_read_at": "_stops_read_at",
    "_group_bell": "_group_throttle",
    "_hear": "_receive",
    "_hear_child": "_read_child",
    "_hear_guard": "_read_guard",
    "_hear_signals": "_catch_signals",
    "_hear_sigterm": "_catch_sigterm",
    "_heard": "_received",
    "_Hearers": "_SharedHandler",
    "_hook_bell": "_hook_throttle",
    "_intake": "_claimer",
    "_kinds": "_task_names",
    "_leave_anchor": "_leave_mark",
    "_on_told": "_on_change",
    "_outside_kinds": "_outside_tasks",
    "_owed": "_deferred",
    "_pay": "_flush_later",
    "_placed": "_site_recorded",
    "_read_anchor": "_read_mark",
    "_read_flags": "_read_stop_requests",
    "_read_flags_again": "_read_stops_again",
    "_read_flags_at": "_read_stops_at",
    "_released": "_without_lease",
    "_requeue": "_requeue_unless_stopped",
    "_ring": "_notify",
    "_settle_carefully": "_settle_successes_locked",
    "_settle_decided": "_decide_and_settle",
    "_settle_good": "_settle_successes",
    "_steered": "_notify_after_stop",
    "_still_asking": "_still_open",
    "_stop_bell": "_stop_throttle",
    "_sync_kinds": "_sync_tasks",
    "_tell": "_notify",
    "_tell_decided": "_log_decided",
    "_tell_ends": "_resolve_ends",
    "_tell_guard": "_send_to_guard",
    "_tell_moved": "_raise_moved",
    "_tell_others": "_notify_others",
    "_tell_within": "_update_groups_at_commit",
    "_Teller": "_TenantNotifier",
    "_teller": "_notifier",
    "_told": "_reported",
    "_TOLD_LATER": "_REPORTED_LATER",
    "_TOLD_OF_TASKS": "_SHOWN_OF_TASKS",
    "_told_of_tasks": "_shown_of_tasks",
    "_told_to_stop": "_stop_requested",
    "_unstorable": "_as_not_serializable",
    "_untold": "_pending",
    "_whole": "_with_full_names",
    "_whole_keys": "_with_full_keys",
    "_woken": "_notify_after_release",
    "abandoned_in_threads": "left_behind_in_threads",
    "abandoned_on_loop": "left_behind_on_loop",
    "ages_of": "retention_by_state",
    "Anchor": "LogMark",
    "aresolve": "askip",
    "ask_holder": "call_holder",
    "ask_to_end": "terminate",
    "Asked": "QuestionAsked",
    "asked": "requested",
    "ASKED_AGAIN": "CHECK_EVERY",
    "asked_by": "requested_by",
    "asked_by_runs": "requested_by_runs",
    "asked_in": "filter_in",
    "asked_to_stop": "stop_requested",
    "AskedByJob": "QuestionOfJob",
    "AskedCall": "CallRequest",
    "Asking": "QuestionBox",
    "asking": "confirm",
    "astore_within": "aenqueue_within",
    "AT_REST": "ENDED_STATES",
    "beat_worker": "report_worker",
    "Bell": "NotifyThrottle",
    "Books": "JobIndex",
    "buried": "has_tombstone",
    "by_kind": "by_task",
    "Cabinet": "StoreCache",
    "cabinet": "cache",
    "check_kinds": "check_tasks",
    "Closing": "PauseWindow",
    "ClosingOptions": "PauseOptions",
    "Deliverer": "HookDispatcher",
    "deliverer": "hook_dispatcher",
    "Door": "SignIn",
    "Ear": "LocalListener",
    "EnlistVerbs": "CallerTransactionVerbs",
    "EventVerbs": "StreamVerbs",
    "EventWriter": "UpdateWriter",
    "everybody": "all_tenants",
    "expect_flag": "expect_stop_request",
    "find_flagged": "find_stop_requested",
    "find_held": "find_leases_of",
    "find_holders": "find_key_owners",
    "find_kinds": "find_tasks",
    "find_long_names": "find_full_names",
    "find_still_asking": "find_jobs_with_open_questions",
    "flag_reads": "stop_reads",
    "FLAGS": "STOP_OF_NUMBER",
    "FOR_A_WHILE": "PAUSE_EXAMPLE",
    "Found": "SearchPage",
    "group_name": "group",
    "GroupRun": "GroupAttempt",
    "Happened": "PendingNotification",
    "hear": "receive",
    "heard": "received",
    "heard_at": "received_at",
    "HEARD_WITHIN": "RECEIVED_WITHIN",
    "hearing_sigterm": "catching_sigterm",
    "hears": "listens",
    "Holder": "RunningJob",
    "HookEvent": "Notification",
    "in_process": "in_child_process",
    "insert_long_names": "insert_full_names",
    "Inserted": "LaneAt",
    "Intake": "Claimer",
    "is_asked": "is_requested",
    "is_buried": "has_tombstone",
    "is_in_process": "runs_in_child_process",
    "JobSheet": "JobMessage",
    "keep_long_names": "store_full_names",
    "kept_filter": "storable_filter",
    "kept_name": "storable_name",
    "kind_is_paused": "task_is_paused",
    "kind_pause": "task_pause",
    "KindCard": "TaskCard",
    "Kinds": "Tasks",
    "kinds_asked": "tasks_shown",
    "kinds_at": "tasks_at",
    "kinds_for": "tasks_for",
    "known_id": "checked_job_id",
    "LAST_BREATH": "EXIT_AFTER_CLOSE",
    "LAST_PLACE": "LAST_NUMBER",
    "LAST_WORDS": "EXIT_GRACE",
    "lease_owner": "worker",
    "lease_until": "lease_expires_at",
    "Leftovers": "ExecutionCleanup",
    "lets_pass": "may_start",
    "limit_at": "time_out_at",
    "limit_cause": "time_out_cause",
    "list_kinds": "list_tasks",
    "lock_free": "lock_skip_locked",
    "lock_free_held": "lock_held_skip_locked",
    "long_names": "full_names",
    "LongNameVerbs": "FullNameVerbs",
    "Looks": "FirstSightings",
    "MEANT_FOR": "BULK_STATES",
    "MOST_EVENTS": "MOST_UPDATES",
    "MOST_UNTOLD": "MOST_UNDELIVERED",
    "near_wakeups": "local_wakeups",
    "NearWakeups": "LocalWakeups",
    "NO_ROOM": "NO_FREE_PLACES",
    "nobody": "ignore",
    "note_run": "record_manual_job",
    "of_kinds": "of_tasks",
    "of_run": "of_attempt",
    "on_abandoned": "on_left_behind",
    "on_asked": "on_request",
    "on_flag": "on_stop_request",
    "on_told": "on_change",
    "OnAsked": "OnRequest",
    "open_asking": "open_questions_box",
    "outcome_when_abandoned": "outcome_when_left_behind",
    "outside_kinds": "outside_tasks",
    "owe": "defer",
    "pause_kind": "pause_task",
    "pay": "flush",
    "place_execution": "record_site",
    "Placed": "RunInSettings",
    "raise_to": "raise_fence",
    "Ran": "RunResult",
    "read_flags": "read_stop_requests",
    "READ_FLAGS_EVERY": "READ_STOPS_EVERY",
    "READ_FLAGS_GAP": "READ_STOPS_GAP",
    "Refused": "InvalidState",
    "RESOLVE": "SKIP",
    "resolve_job": "skip_job",
    "resume_kind": "resume_task",
    "run_folder": "execution_folder",
    "run_outcome": "outcome_label",
    "RunOutcome": "OutcomeLabel",
    "runs_chart": "attempts_chart",
    "Sending": "EnqueueSpan",
    "settled_at": "ended_at",
    "sight_missed": "sight_overdue",
    "since_the_first_run": "since_the_first_attempt",
    "somebody": "caller",
    "speaking": "as_async",
    "spoken": "as_async",
    "stall_told": "stall_reported",
    "state_told": "state_reported",
    "STEERS": "CONTROLS",
    "store_pieces": "enqueue_pieces",
    "store_within": "enqueue_within",
    "StoreDoor": "StoreAccess",
    "surely_comes_back": "is_json_safe",
    "Talk": "Exchange",
    "TaskSheet": "TaskMessage",
    "Tell": "Notify",
    "tell_at": "notify_at",
    "tell_ends": "log_ends",
    "tell_files": "send_files",
    "tell_groups": "update_groups",
    "tell_holders": "notify_holders",
    "tell_hooks": "notify_hooks",
    "tell_listeners": "notify_listeners",
    "tell_loss": "log_loss",
    "tell_of_groups": "write_outbox_of_groups",
    "tell_starts": "log_starts",
    "tell_success": "log_success",
    "tell_tenants": "notify_tenants",
    "tell_usage": "print_usage_error",
    "tell_watchers": "notify_watchers",
    "Teller": "Emitter",
    "Telling": "Reports",
    "TellingInThread": "SyncReports",
    "TellingOnLoop": "AsyncReports",
    "tells_groups": "notifies_groups",
    "Told": "Unwritten",
    "told": "reported",
    "told_again_in": "retry_in",
    "told_at": "reported_at",
    "told_kinds": "notified_tasks",
    "told_of_pooler": "pooler_declared",
    "told_tenants": "notified_tenants",
    "told_to_stop": "stop_requested",
    "told_us": "reported",
    "too_many_abandoned": "too_many_left_behind",
    "unaffected_kinds": "unaffected_tasks",
    "Unstorable": "NotSerializable",
    "unstorable": "not_serializable",
    "Visit": "PageRequest",
    "visit": "page_request",
    "VitalVerbs": "DatabaseCheckVerbs",
    "wake": "notify_workers",
    "wake_here": "notify_here",
    "WEBHOOK_KIND": "WEBHOOK_TASK",
    "Who": "RequestCaller",
    "who": "caller",
    "who_has_open": "processes_that_opened",
    "whoever": "anyone",
    "whole_names": "full_names",
    "WHOSE": "TENANT_QUEUE_TASK",
    "with_whole": "with_full_names",
    "write_events": "write_updates",
}

CONSTANTS = {
    "AGAIN", "AT_ONCE", "CAP", "EACH", "EVERY", "GAP", "LATE", "LATELY", "LISTED", "LOOKING", "LOOKS", "LOOK_EVERY",
    "MANY", "MASS", "MOST", "MOST_AT_ONCE", "NAMED", "PATIENCE", "QUIET", "SELDOM", "SHARE", "SHOWN", "SILENCE",
    "SOONEST", "STUCK", "TICK",
}  # fmt: skip
"""Names that do not say what they bound: of several files, each meant something else."""

FILES = {
    "answers.py": ("stores/results.py",),
    "asked.py": ("surfaces/dashboard/pages/jobs.py", "surfaces/http/requests.py", "surfaces/mcp/tools.py"),
    "asking.py": ("run/questions.py",),
    "books.py": ("stores/tenants/routing.py",),
    "by_hand.py": ("surfaces/http/handwritten.py",),
    "by_id.py": ("domain/records.py",),
    "cabinet.py": ("stores/tenants/directory.py",),
    "closing.py": ("domain/limits.py", "remote/operator.py"),
    "deliverer.py": ("worker/hooks.py",),
    "door.py": ("surfaces/dashboard/access.py",),
    "enlist.py": ("stores/postgres/store.py", "stores/sqlite/store.py", "stores/verbs/caller_transaction.py"),
    "enlist.sql": ("stores/postgres/sql/caller_transaction.sql", "stores/sqlite/sql/caller_transaction.sql"),
    "exits.py": ("run/exceptions.py",),
    "hop.py": ("stores/caller_transaction.py",),
    "intake.py": ("worker/claimer.py",),
    "internals.py": ("wiring.py",),
    "kinds.py": ("domain/records.py",),
    "leftovers.py": ("worker/pruner.py",),
    "lent.py": ("stores/database/database.py",),
    "line.py": ("remote/transport.py",),
    "many.py": ("stores/tenants/multi_store.py",),
    "moves.py": ("domain/outcome.py",),
    "now.py": ("surfaces/dashboard/pages/overview.py",),
    "one.py": ("stores/tenants/tenant_store.py",),
    "opened.py": ("stores/open.py",),
    "parts.py": ("stores/tenants/routing.py",),
    "patience.py": ("operations/local.py", "stores/database/read_timeout.py"),
    "portable.py": ("domain/errors.py",),
    "program.py": ("worker/worker.py",),
    "raised.py": ("run/exceptions.py",),
    "read.py": ("operations/json_records.py",),
    "remote.py": ("worker/process/rpc.py",),
    "round_trip.py": ("tasks/codec.py",),
    "run_folder.py": ("runners/execution_folder.py",),
    "sending.py": ("client/enqueue.py",),
    "served.py": ("stores/tenants/routing.py", "worker/logs.py", "worker/process/rpc.py"),
    "sheet.py": ("worker/process/job_message.py",),
    "spending.py": ("run/budgets.py",),
    "steering.py": ("surfaces/dashboard/pages/job.py",),
    "talk.py": ("remote/exchange.py",),
    "told.py": ("surfaces/http/responses.py", "surfaces/mcp/responses.py"),
    "told_many.py": ("surfaces/http/responses.py",),
    "turns.py": ("stores/tenants/routing.py",),
    "views.py": ("domain/records.py",),
    "visit.py": ("surfaces/dashboard/page_request.py",),
    "vitals.py": ("stores/postgres/store.py", "stores/sqlite/store.py", "stores/verbs/workers.py"),
    "vitals.sql": ("stores/postgres/sql/workers.sql", "stores/sqlite/sql/workers.sql"),
    "walks.py": ("stores/verbs/inspect.py",),
    "walks.sql": ("stores/postgres/sql/inspect.sql", "stores/sqlite/sql/inspect.sql"),
    "words.py": ("operations/explain.py", "surfaces/dashboard/render.py"),
}
"""Base names that no file of the package has, and the files that hold the code now."""

PATHS = {
    "stores/postgres/sql/events.sql": "stores/postgres/sql/stream.sql",
    "stores/sqlite/sql/events.sql": "stores/sqlite/sql/stream.sql",
    "stores/verbs/events.py": "stores/verbs/stream.py",
    "surfaces/guard/places.py": "surfaces/guard.py",
    "worker/watch.py": "worker/watchdog.py",
}
"""Paths whose base name says what it holds in another room."""

STAY_IN_SQL = {"group_name"}
"""`group` is reserved there."""


def test_no_replaced_name_is_in_the_package():
    found = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for suffix, names in NAMES.items()
        for path in PACKAGE.rglob(f"*{suffix}")
        if "vendor" not in path.parts
        for line, name in names(path.read_text())
        if name in IDENTIFIERS and not (suffix == ".sql" and name in STAY_IN_SQL)
    ]
    assert found == []


def test_constants_say_what_they_bound():
    found = [
        f"{path.relative_to(PACKAGE)}:{token.start[0]} {token.string}"
        for path in PACKAGE.rglob("*.py")
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.NAME and token.string in CONSTANTS
    ]
    assert found == []


def test_no_replaced_file_name_is_in_the_package():
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    assert sorted(str(path) for path in files if path.name in FILES or path.as_posix() in PATHS) == []


def names_in_python(source: str) -> list[tuple[int, str]]:
    """Each name with its line; texts and comments are not looked at."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.NAME]


def names_in_sql(source: str) -> list[tuple[int, str]]:
    """Names of statements, tables, columns and parameters, without texts and comments."""
    lines = enumerate(source.splitlines(), 1)
    code = [(n, re.sub(r"-- name:|--.*|'[^']*'", " ", line)) for n, line in lines]
    return [(n, name) for n, line in code for name in WORD.findall(line)]


def names_in_template(source: str) -> list[tuple[int, str]]:
    """Names in expressions and statements of Jinja, without texts."""
    found = []
    for part in re.finditer(r"{{.*?}}|{%.*?%}", source, re.DOTALL):
        line = source.count("\n", 0, part.start()) + 1
        found += [(line, name) for name in WORD.findall(re.sub(TEXT, " ", part[0]))]
    return found


def names_in_script(source: str) -> list[tuple[int, str]]:
    code = enumerate((re.sub(rf"//.*|{TEXT}|`[^`]*`", " ", line) for line in source.splitlines()), 1)
    return [(n, name) for n, line in code for name in WORD.findall(line)]


WORD = re.compile(r"[A-Za-z_]\w*")
TEXT = r"\"[^\"]*\"|'[^']*'"
NAMES: dict[str, Callable[[str], list[tuple[int, str]]]] = {
    ".py": names_in_python,
    ".sql": names_in_sql,
    ".html": names_in_template,
    ".js": names_in_script,
}


def test_a_replaced_name_is_noticed_in_code_and_not_in_texts():
    assert names_in_python('"""told"""\nreply.told = asked  # heard\n') == [
        *((2, "reply"), (2, "told"), (2, "asked")),
    ]
    assert names_in_sql("-- name: tell\n-- told\nSELECT 'asked' AS told, :who;\n") == [
        *((1, "tell"), (3, "SELECT"), (3, "AS"), (3, "told"), (3, "who")),
    ]
    assert names_in_template("told\n{% if who == 'asked' %}{{ heard }}") == [
        *((2, "if"), (2, "who"), (2, "heard")),
    ]
    assert names_in_script('const told = "asked"; // heard\n') == [(1, "const"), (1, "told")]


def test_every_replaced_file_name_has_a_new_one():
    targets = {target for found in FILES.values() for target in found} | set(PATHS.values())
    assert sorted(target for target in targets if not (PACKAGE / target).is_file()) == []
    old = [(name, target) for name, found in FILES.items() for target in found] + [*PATHS.items()]
    assert [name for name, target in old if Path(name).suffix != Path(target).suffix] == []
