"""Hooks: the user's functions by their listeners, the dispatcher that calls them, and the task that posts to
webhooks."""

from __future__ import annotations

import contextlib
import functools
import http.client
import inspect
import logging
import random
import secrets
import socket
import ssl
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from leasehold.domain.checks.ids import make_id
from leasehold.domain.checks.texts import checked_name
from leasehold.domain.errors import InvalidInput, StoreError
from leasehold.domain.hooks import (
    GROUP_DONE,
    SUCCEEDED,
    WEBHOOK_QUEUE,
    WEBHOOK_TASK,
    HookDelivery,
    Listener,
    Notification,
    PendingNotification,
    Webhook,
    delivery_job,
    is_public,
    retry_in,
    signed_headers,
)
from leasehold.domain.job import NewJob
from leasehold.domain.outcome import clean_error
from leasehold.domain.signals import Fail
from leasehold.stores.database.wakeups import ANYTHING, Hint
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import TaskSettings
from leasehold.threads import Threads, to_thread
from leasehold.worker.service import ENDS_WITHIN, HookThread, Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

Hook = Callable[[Notification], object]


class Hooks:
    """The registered functions, and which notifications each wants."""

    def __init__(self) -> None:
        self._functions: dict[str, Hook] = {}
        self._listeners: list[Listener] = []
        self.webhooks: list[tuple[Webhook, list[Listener]]] = []
        """Webhooks declared in code, with their listeners."""

    def add(
        self, events: tuple[str, ...], hook: Hook, tasks: Iterable[str] = (), name: str | None = None
    ) -> None:
        if inspect.iscoroutinefunction(hook):
            raise InvalidInput(
                "hook", f"{hook.__name__} is async", "give a plain function: it is called in a thread"
            )
        given = self._free_name(checked_name(name or _name_of(hook), "name"), hook)
        self._functions[given] = hook
        wanted = [checked_name(task, "tasks") for task in tasks] or [""]
        self._listeners += [Listener(given, event, task) for event in events for task in wanted]

    def _free_name(self, name: str, hook: Hook) -> str:
        """Make the name unique: two functions of one name are two listeners, numbered in the order of registration."""
        number, free = 1, name
        while self._functions.get(free, hook) is not hook:
            number += 1
            free = f"{name}#{number}"
        return free

    @property
    def names(self) -> list[str]:
        return list(self._functions)

    @property
    def listeners(self) -> list[Listener]:
        return list(dict.fromkeys(self._listeners))

    def get(self, name: str) -> Hook:
        return self._functions[name]


def _name_of(hook: Any) -> str:
    """Return a name that is the same in every process that has the function."""
    module = getattr(hook, "__module__", None) or type(hook).__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{getattr(hook, '__qualname__', type(hook).__qualname__)}"


# -- the dispatcher ----------------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.hooks")

POLL_EVERY, POLL_SELDOM = 1.0, 5.0
"""Seconds between two polls without a hint; the longer one if there is nothing to deliver."""
POLL_GAP = 0.1
"""Seconds between two polls, however many hints come: on SQLite every commit by any process is a hint."""
TOUCH_EVERY = 60.0
FORGET_EVERY = 3600.0
DELIVERY_LEASE = 60.0
"""Seconds after which an event that was taken and not delivered is due again."""
LONGEST_CALL = DELIVERY_LEASE / 2
"""Seconds after which a call counts as stuck. Calls begin only in the first half of their events' lease: one that takes
no longer than the other half is over before another worker may repeat it."""
DELIVERY_BATCH = 20
MOST_UNDELIVERED = 1000
LONGEST_ERROR = 2000


class _Every(Container[Any]):
    def __contains__(self, _: object) -> bool:
        return True


class HookDispatcher(Service):
    """Takes events for the hooks that have room, and gives each to its hook's thread."""

    def __init__(
        self,
        store: JobStore,
        hooks: Hooks,
        make_job: Callable[[HookDelivery], NewJob],
        on_webhooks: Callable[[], None],
    ) -> None:
        super().__init__("hooks", self._beat, slowest=POLL_SELDOM)
        self._store = store
        self._hooks = hooks
        self._make_job = make_job
        self._on_webhooks = on_webhooks
        self._listeners: list[Listener] = []
        self.notified_tasks: Container[str] | None = None
        """The tasks whose successes have a listener; None: no task has one."""
        self.notifies_groups = False
        self._unsent: deque[PendingNotification] = deque(maxlen=MOST_UNDELIVERED)
        self._unacknowledged: deque[Callable[[], None]] = deque(maxlen=MOST_UNDELIVERED)
        """What the database did not accept about calls that have ended."""
        self._registered = False
        self._touched_at = time.monotonic()
        self._forget_at = time.monotonic() + random.uniform(30, 300)
        self._looked_at = float("-inf")
        self._hurry = False
        self._begun = self._ended = self._flushing = 0
        self._turn = threading.Condition()
        self._threads: dict[str, HookThread] = {}
        self.finishes = False
        """Whether a stop waits until all events are delivered, as long as the hooks return."""

    # -- for the worker --------------------------------------------------------------------------------------------
    def register(self) -> None:
        """Register before the first claim, so that nothing from then on is missed."""
        try:
            self._register()
        except StoreError as error:
            logger.warning("hooks could not be registered yet: %s", error)

    def hint(self, hint: Hint = Hint.HOOKS) -> None:
        # A commit by another process concerns us only if there is a hook to call.
        if hint != ANYTHING or self._serves:
            self.nudge()

    def notify(self, happened: PendingNotification) -> None:
        """Send a notification that no transition in the database causes. Called on the loop; our thread delivers it."""
        self._unsent.append(happened)
        self.nudge()

    def flush(self, seconds: float = 5.0) -> None:
        """Wait until everything up to now was delivered, as far as possible; a hook that is stuck is not waited for."""
        if not self._serves:
            return
        with self._turn:
            begun = self._begun
            self._flushing += 1
            self._hurry = True
            self.nudge()
            self._turn.wait_for(lambda: self._ended > begun, seconds)
            self._flushing -= 1

    @property
    def problems(self) -> list[str]:
        """The hooks that are stuck. The other hooks, and the jobs, go on."""
        seconds = {thread.name: thread.stuck_for for thread in list(self._threads.values())}
        return [f"hook {name} has not returned for {s:.0f} s" for name, s in seconds.items() if s is not None]

    def stop(self) -> None:
        super().stop()
        try:
            if self._serves or self._unsent:
                self._round()
                self._finish()
        except Exception as error:
            logger.warning("left the last events to other workers: %s", error)
        for thread in self._threads.values():
            self._give_back(thread.withdraw())
            seconds = thread.close()
            if seconds is not None:
                logger.warning(
                    "left hook %s, which has not returned for %.0f s; its event is delivered again",
                    thread.name,
                    seconds,
                )

    def _finish(self) -> None:
        """Deliver what is left, for a few seconds; in a burst for as long as a call returns every few seconds."""
        until = time.monotonic() + ENDS_WITHIN
        while True:
            calls = self._calls
            took = self._feed()
            with self._turn:
                # A hook that was busy at the look, and is free now, has ended a call: it was not looked for.
                if not took and self._calls == calls and all(t.has_room for t in self._threads.values()):
                    return
                seconds = until - time.monotonic()
                if seconds <= 0 or not self._turn.wait_for(lambda: self._calls > calls, seconds):  # noqa: B023 # called before the next turn
                    return
            if self.finishes:
                until = time.monotonic() + ENDS_WITHIN

    @property
    def _calls(self) -> int:
        return sum(thread.calls for thread in self._threads.values())

    @property
    def _serves(self) -> bool:
        return bool(self._hooks.names or self._webhooks)

    @property
    def _declared(self) -> list[str]:
        """Names of listeners whose code is in this process."""
        return [*self._hooks.names, *(webhook.listener for webhook, _ in self._hooks.webhooks)]

    @property
    def _webhooks(self) -> list[str]:
        return sorted({listener.name for listener in self._listeners if listener.webhook})

    # -- in its thread ---------------------------------------------------------------------------------------------
    def _beat(self) -> float:
        wait = self._looked_at + POLL_GAP - time.monotonic()
        if wait > 0 and not self._hurry:
            return wait
        with self._turn:
            self._hurry = False
            self._begun += 1
            begun, calls = self._begun, self._calls
        took = False
        try:
            self._part_with_stuck()
            took = self._round()
        finally:
            self._looked_at = time.monotonic()
            with self._turn:
                free = all(t.has_room or t.stuck_for is not None for t in self._threads.values())
                if free and not took and self._calls == calls:
                    self._ended = begun
                self._turn.notify_all()
        return POLL_EVERY if self._serves else POLL_SELDOM

    def _round(self) -> bool:
        """Return whether there were events for hooks."""
        if not self._registered:
            self._register()
        while self._unacknowledged:
            self._unacknowledged[0]()
            self._unacknowledged.popleft()
        while self._unsent:
            self._store.notify_listeners([self._unsent[0]])
            self._unsent.popleft()
        self._look()
        self._keep_up()
        if self._store.enqueue_events(self._webhooks, self._make_job):
            self._store.notify_workers()
        return self._feed()

    def _register(self) -> None:
        self._store.register_listeners(self._hooks.listeners)
        for webhook, listeners in self._hooks.webhooks:
            self._store.set_webhook(webhook, listeners)
        if self._declared:
            self._store.notify_hooks()
        self._look()
        self._registered = True

    def _look(self) -> None:
        self._listeners = self._store.find_listeners()
        tasks = {listener.task for listener in self._listeners if listener.event == SUCCEEDED}
        self.notified_tasks = None if not tasks else _Every() if "" in tasks else frozenset(tasks)
        if self._webhooks:
            self._on_webhooks()
        self.notifies_groups = any(listener.event == GROUP_DONE for listener in self._listeners)

    def _keep_up(self) -> None:
        now = time.monotonic()
        if self._declared and now >= self._touched_at + TOUCH_EVERY:
            self._store.touch_listeners(self._declared)
            self._touched_at = now
        if self._listeners and now >= self._forget_at:
            self._store.forget_listeners()
            self._forget_at = now + FORGET_EVERY

    def _feed(self) -> bool:
        """Take events for the hooks that have room, until there are none; returns whether there were some. A hook gets
        the next events only when it is done with the last ones: those of a stuck hook fill no batch."""
        some = False
        while True:
            until = time.monotonic() + LONGEST_CALL
            names = [name for name in self._hooks.names if self._thread_of(name).take_turn()]
            taken = self._store.take_events(names, DELIVERY_BATCH, DELIVERY_LEASE) if names else []
            if not taken:
                return some
            some = True
            by_hook: dict[str, list[HookDelivery]] = {}
            for delivery in taken:
                by_hook.setdefault(delivery.listener, []).append(delivery)
            for name, events in by_hook.items():
                self._threads[name].give(events, until, more=len(taken) >= DELIVERY_BATCH)
            if self._stopping:  # a stop sets itself a time
                return some

    def _thread_of(self, name: str) -> HookThread:
        if name not in self._threads:
            self._threads[name] = HookThread(name, self._turn, self._deliver, self._give_back, self._on_done)
        return self._threads[name]

    def _part_with_stuck(self) -> None:
        """Let other workers have the events that wait behind a stuck call."""
        for thread in self._threads.values():
            if thread.find_stuck(LONGEST_CALL):
                logger.warning(
                    "hook %s has not returned for %.0f s; until it does, other workers get its events, and it is not"
                    " called here; other hooks go on",
                    thread.name,
                    LONGEST_CALL,
                )
                self._give_back(thread.withdraw())

    # -- in the hooks' threads -------------------------------------------------------------------------------------
    def _on_done(self, thread: HookThread) -> None:
        if thread.expects_more or self._flushing:
            self._hurry = True
            self.nudge()

    def _deliver(self, delivery: HookDelivery) -> None:
        event = delivery.event
        try:
            self._hooks.get(delivery.listener)(event)
        except BaseException as error:  # SystemExit too: the hook is called again, and its thread goes on
            again = retry_in(delivery.tries)
            then = "giving up" if again is None else f"trying again in {again:g} s"
            logger.exception("hook %s failed on %r; %s", delivery.listener, event.name, then)
            text = _error_text(error)
            self._write(lambda: self._store.retry_event(event.id, again, text))
        else:
            self._write(lambda: self._store.drop_events([event.id]))

    def _give_back(self, events: Sequence[HookDelivery]) -> None:
        if events:
            self._write(lambda: self._store.give_back_events([one.event.id for one in events]))

    def _write(self, call: Callable[[], None]) -> None:
        """Write what has become of events; the dispatcher repeats what the database does not take now."""
        try:
            call()
        except StoreError:
            self._unacknowledged.append(call)
        except Exception:
            logger.exception("hooks: unexpected error; the event is delivered again")


def _error_text(error: BaseException) -> str:
    """Format the error so that every store accepts it, even without text: the next delivery waits for this record."""
    return clean_error("".join(traceback.format_exception_only(error)).strip()[:LONGEST_ERROR])


# -- webhooks ----------------------------------------------------------------------------------------------------------

HTTP_GONE = 410

WEBHOOK_PLACES = 16
"""Deliveries that a worker has under way at once. They take no places of jobs: a receiver may hang."""

_posts = Threads(WEBHOOK_PLACES, "post")
"""Threads for deliveries alone, because receivers may be slow."""


class Undelivered(Exception):
    """The receiver did not accept the delivery, which is retried."""


def make_delivery(delivery: HookDelivery) -> NewJob:
    job_id = make_id(time.time_ns() // 1_000_000, secrets.token_bytes(10))
    return delivery_job(job_id, delivery.listener.partition(":")[2], delivery.event)


def webhook_task(store: JobStore) -> TaskDefinition:
    async def deliver(webhook: str, event_id: str, body: str) -> str:
        """Deliver a notification, in a thread that ends by itself: `post` limits its total time."""
        found = await to_thread(store.find_webhook, webhook)
        if found is None:
            return "the webhook was removed"
        return await _posts.call(_deliver, found, event_id, body)

    return TaskDefinition(deliver, WEBHOOK_TASK, TaskSettings(queue=WEBHOOK_QUEUE, lease=60.0))


def _deliver(webhook: Webhook, event_id: str, body: str) -> str:
    raw = body.encode()
    headers = signed_headers(event_id, raw, webhook.secret, time.time())
    headers |= {"content-type": "application/json", "user-agent": "leasehold"}
    send = functools.partial(post, webhook.url, raw, headers, allow_private=webhook.allow_private)
    try:
        status = send()
    except Refusal as refusal:
        raise Fail(str(refusal)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Undelivered(f"{type(error).__name__}: {error}") from None
    if 200 <= status < 300:
        return f"status {status}"
    if 300 <= status < 400:
        raise Fail(f"status {status}: redirects are not followed; register the address that it leads to")
    if status == HTTP_GONE:
        raise Fail("status 410: the receiver wants no more of them; remove the webhook")
    raise Undelivered(f"status {status}")


# -- one POST ----------------------------------------------------------------------------------------------------------

POST_SECONDS = 15.0
"""Limit for the whole request: a server that answers byte by byte must not hold a worker."""
MOST_READ = 65_536


class Refusal(Exception):
    """The address must not be posted to."""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, seconds: float = POST_SECONDS
) -> int:
    """Return the status. Raises Refusal, or passes on OSError and http.client.HTTPException."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    until = time.monotonic() + seconds
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    connection.sock = _connected(host, port, allow_private, until)
    connection.sock.settimeout(seconds)
    watch = threading.Timer(max(0.0, until - time.monotonic()), _cut_off, [connection])
    watch.daemon = True
    watch.start()
    try:
        if parts.scheme == "https":
            # The name is for the certificate and the Host header; the socket goes to the checked address.
            secured = ssl.create_default_context().wrap_socket(
                connection.sock, server_hostname=host, do_handshake_on_connect=False
            )
            connection.sock = secured
            secured.do_handshake()
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        connection.request("POST", target, body, {"host": parts.netloc, **headers})
        answer = connection.getresponse()
        answer.read(MOST_READ)
        return answer.status
    finally:
        watch.cancel()
        connection.close()


def _connected(host: str, port: int, allow_private: bool, until: float) -> socket.socket:
    """Connect to one of the addresses that the name resolves to. If any is not public, connect to none: its owner
    controls the name, and it may resolve to anything next time. All addresses share the time limit."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    private = [address for address in addresses if not is_public(address)]
    if private and not allow_private:
        raise Refusal(
            f"{host} is {private[0]}, which is not an address of the Internet; allow_private permits it"
        )
    error: OSError | None = None
    for number, address in enumerate(addresses):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((address, port), timeout=left / (len(addresses) - number))
        except OSError as problem:
            error = problem
    raise error or OSError(f"{host} has no address")


def _cut_off(connection: http.client.HTTPConnection) -> None:
    sock: socket.socket | None = connection.sock  # None: the request ended at the same moment
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
