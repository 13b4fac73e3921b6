"""Names that were replaced by the field's words, and must not come back: whole identifiers and file names, in `src`
alone. What each of them is called now stands beside it."""

from __future__ import annotations

import io
import tokenize
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
    "_claim_kinds": "_claim_tasks",
    "_drain_asked": "_drain_requested",
    "_ear": "_listener",
    "_ears": "_listeners",
    "_ears_lock": "_listeners_lock",
    "_find_kinds": "_find_tasks",
    "_group_bell": "_group_throttle",
    "_hear": "_receive",
    "_hear_child": "_read_child",
    "_hear_guard": "_read_guard",
    "_hear_signals": "_catch_signals",
    "_hear_sigterm": "_catch_sigterm",
    "_heard": "_received",
    "_Hearers": "_SharedHandler",
    "_hook_bell": "_hook_throttle",
    "_kinds": "_task_names",
    "_on_told": "_on_change",
    "_outside_kinds": "_outside_tasks",
    "_owed": "_deferred",
    "_pay": "_flush_later",
    "_ring": "_notify",
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
    "_teller": "_notifier",
    "_Teller": "_TenantNotifier",
    "_told": "_reported",
    "_TOLD_LATER": "_REPORTED_LATER",
    "_TOLD_OF_TASKS": "_SHOWN_OF_TASKS",
    "_told_of_tasks": "_shown_of_tasks",
    "_told_to_stop": "_stop_requested",
    "_untold": "_pending",
    "_whole": "_with_full_names",
    "_whole_keys": "_with_full_keys",
    "_woken": "_notify_after_release",
    "ages_of": "retention_by_state",
    "aresolve": "askip",
    "Asked": "QuestionAsked",
    "asked": "requested",
    "ASKED_AGAIN": "CHECK_EVERY",
    "asked_by": "requested_by",
    "asked_by_runs": "requested_by_runs",
    "asked_in": "filter_in",
    "AskedByJob": "QuestionOfJob",
    "AskedCall": "CallRequest",
    "Asking": "QuestionBox",
    "astore_within": "aenqueue_within",
    "Bell": "NotifyThrottle",
    "Books": "JobIndex",
    "by_kind": "by_task",
    "cabinet": "cache",
    "Cabinet": "StoreCache",
    "check_kinds": "check_tasks",
    "Closing": "PauseWindow",
    "ClosingOptions": "PauseOptions",
    "Deliverer": "HookDispatcher",
    "Door": "Access",
    "Ear": "LocalListener",
    "everybody": "all_tenants",
    "find_kinds": "find_tasks",
    "Found": "SearchPage",
    "group_name": "group",
    "hear": "receive",
    "heard": "received",
    "heard_at": "received_at",
    "HEARD_WITHIN": "RECEIVED_WITHIN",
    "hearing_sigterm": "catching_sigterm",
    "hears": "listens",
    "HookEvent": "Notification",
    "Intake": "Claimer",
    "is_asked": "is_requested",
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
    "lease_owner": "worker",
    "Leftovers": "ExecutionCleanup",
    "list_kinds": "list_tasks",
    "MOST_UNTOLD": "MOST_UNDELIVERED",
    "of_kinds": "of_tasks",
    "on_asked": "on_request",
    "on_told": "on_change",
    "OnAsked": "OnRequest",
    "open_asking": "open_questions_box",
    "outside_kinds": "outside_tasks",
    "owe": "defer",
    "pause_kind": "pause_task",
    "pay": "flush",
    "Ran": "RunResult",
    "Refused": "InvalidState",
    "RESOLVE": "SKIP",
    "resolve_job": "skip_job",
    "resume_kind": "resume_task",
    "Sending": "EnqueueSpan",
    "speaking": "as_async",
    "spoken": "as_async",
    "stall_told": "stall_reported",
    "state_told": "state_reported",
    "store_pieces": "enqueue_pieces",
    "store_within": "enqueue_within",
    "StoreDoor": "StoreAccess",
    "surely_comes_back": "is_json_safe",
    "Talk": "Exchange",
    "Tell": "Notify",
    "tell_at": "notify_at",
    "tell_ends": "log_ends",
    "tell_files": "send_files",
    "tell_groups": "notify_groups",
    "tell_holders": "notify_holders",
    "tell_hooks": "notify_hooks",
    "tell_listeners": "notify_listeners",
    "tell_loss": "log_loss",
    "tell_of_groups": "notify_about_groups",
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
    "unaffected_kinds": "unaffected_tasks",
    "Unstorable": "NotSerializable",
    "visit": "page_request",
    "Visit": "PageRequest",
    "wake": "notify_workers",
    "wake_here": "notify_here",
    "WEBHOOK_KIND": "WEBHOOK_TASK",
    "who": "caller",
    "Who": "RequestCaller",
    "who_has_open": "processes_that_opened",
    "whoever": "anyone",
    "whole_names": "full_names",
    "with_whole": "with_full_names",
}

CONSTANTS = {
    "AGAIN", "AT_ONCE", "EACH", "EVERY", "GAP", "LOOKING", "LOOKS", "LOOK_EVERY", "MANY", "MASS", "MOST_AT_ONCE",
    "PATIENCE", "SELDOM", "SILENCE", "SOONEST", "STUCK", "TICK",
}  # fmt: skip
"""Names that do not say what they bound: of several files, each meant something else."""

ROOMS = (
    *("domain", "stores", "tasks", "run", "runners", "worker"),
    *("operations", "client", "remote", "demo", "contrib"),
)
"""The rooms whose constants all say it by now."""

FILES = {
    "client/sending.py": "client/enqueue.py",
    "domain/by_id.py": "domain/records.py",
    "domain/closing.py": "domain/limits.py",
    "domain/kinds.py": "domain/records.py",
    "domain/moves.py": "domain/outcome.py",
    "domain/portable.py": "domain/errors.py",
    "domain/views.py": "domain/records.py",
    "internals.py": "wiring.py",
    "operations/explain/words.py": "operations/explain.py",
    "operations/patience.py": "operations/local.py",
    "remote/closing.py": "remote/pause_window.py",
    "remote/line.py": "remote/transport.py",
    "remote/read.py": "remote/decode.py",
    "remote/talk.py": "remote/exchange.py",
    "run/asking.py": "run/questions.py",
    "run/exits.py": "run/exceptions.py",
    "run/raised.py": "run/exceptions.py",
    "run/spending.py": "run/budgets.py",
    "stores/answers.py": "stores/results.py",
    "stores/base/lent.py": "stores/database/database.py",
    "stores/contract/patience.py": "stores/contract/read_timeout.py",
    "stores/enlist/hop.py": "stores/caller_transaction.py",
    "stores/opened.py": "stores/open.py",
    "stores/postgres/enlist.py": "stores/postgres/store.py",
    "stores/postgres/sql/enlist.sql": "stores/postgres/sql/caller_transaction.sql",
    "stores/postgres/sql/vitals.sql": "stores/postgres/sql/workers.sql",
    "stores/postgres/sql/walks.sql": "stores/postgres/sql/inspect.sql",
    "stores/postgres/vitals.py": "stores/postgres/store.py",
    "stores/postgres/walks.py": "stores/postgres/list_plans.py",
    "stores/sqlite/enlist.py": "stores/sqlite/store.py",
    "stores/sqlite/sql/enlist.sql": "stores/sqlite/sql/caller_transaction.sql",
    "stores/sqlite/sql/vitals.sql": "stores/sqlite/sql/workers.sql",
    "stores/sqlite/sql/walks.sql": "stores/sqlite/sql/inspect.sql",
    "stores/sqlite/vitals.py": "stores/sqlite/store.py",
    "stores/sqlite/walks.py": "stores/sqlite/list_plans.py",
    "stores/tenants/books.py": "stores/tenants/routing.py",
    "stores/tenants/cabinet.py": "stores/tenants/directory.py",
    "stores/tenants/many.py": "stores/tenants/multi_store.py",
    "stores/tenants/one.py": "stores/tenants/tenant_store.py",
    "stores/tenants/parts.py": "stores/tenants/routing.py",
    "stores/tenants/served.py": "stores/tenants/routing.py",
    "stores/tenants/turns.py": "stores/tenants/routing.py",
    "stores/verbs/enlist.py": "stores/verbs/caller_transaction.py",
    "stores/verbs/vitals.py": "stores/verbs/workers.py",
    "stores/verbs/walks.py": "stores/verbs/inspect.py",
    "surfaces/dashboard/door.py": "surfaces/dashboard/access.py",
    "surfaces/dashboard/pages/asked.py": "surfaces/dashboard/pages/jobs.py",
    "surfaces/dashboard/pages/now.py": "surfaces/dashboard/pages/overview.py",
    "surfaces/dashboard/steering.py": "surfaces/dashboard/pages/job.py",
    "surfaces/dashboard/visit.py": "surfaces/dashboard/page_request.py",
    "surfaces/dashboard/words.py": "surfaces/dashboard/render.py",
    "surfaces/guard/places.py": "surfaces/guard.py",
    "surfaces/http/asked.py": "surfaces/http/requests.py",
    "surfaces/http/told.py": "surfaces/http/responses.py",
    "surfaces/http/told_many.py": "surfaces/http/list_responses.py",
    "surfaces/mcp/asked.py": "surfaces/mcp/tools.py",
    "surfaces/mcp/told.py": "surfaces/mcp/responses.py",
    "tasks/round_trip.py": "tasks/codec.py",
    "worker/deliverer.py": "worker/hooks.py",
    "worker/intake.py": "worker/claimer.py",
    "worker/leftovers.py": "worker/pruner.py",
    "worker/process/remote.py": "worker/process/rpc.py",
    "worker/process/served.py": "worker/process/rpc.py",
    "worker/process/sheet.py": "worker/process/job_message.py",
    "worker/program.py": "worker/worker.py",
    "worker/served.py": "worker/logs.py",
    "worker/watch.py": "worker/watchdog.py",
}


def test_no_replaced_name_is_in_the_package():
    found = [
        f"{path.name}:{line} {name}"
        for path in PACKAGE.rglob("*.py")
        for line, name in replaced(path.read_text())
    ]
    assert found == []


def test_constants_say_what_they_bound():
    found = [
        f"{path.relative_to(PACKAGE)}:{token.start[0]} {token.string}"
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.NAME and token.string in CONSTANTS
    ]
    assert found == []


def test_no_replaced_file_name_is_in_the_package():
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    assert sorted(files & FILES.keys()) == []


def replaced(source: str) -> list[tuple[int, str]]:
    """Each place where a replaced name is used as a name; texts and comments are not looked at."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = [(token.start[0], token.string) for token in tokens if token.type == tokenize.NAME]
    return [(line, name) for line, name in names if name in IDENTIFIERS]


def test_a_replaced_name_is_noticed_in_code_and_not_in_texts():
    assert replaced('"""told"""\nreply.told = asked  # heard\n') == [(2, "told"), (2, "asked")]


def test_every_replaced_file_name_has_a_new_one():
    assert [old for old, new in FILES.items() if Path(old).suffix != Path(new).suffix] == []
