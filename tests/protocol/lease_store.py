"""The database's half of the lease model: what each guarded statement does to a row.

Every function here is one short transaction that has the row under its lock: it decides with the row as it is
there, flags included. `settle` is looked up in the literal table of `settle_table`, so walking the model also
tries the table itself.
"""

from tests.protocol.lease_state import (
    ASKED,
    CANCEL,
    FINAL,
    HELD,
    NO_FLAG,
    NO_QUESTION,
    NOBODY,
    NOWHERE,
    PAUSE,
    Row,
    Setup,
)
from tests.protocol.settle_table import (
    EXPECTED,
    FAILED,
    FLAGS,
    ORPHAN,
    PAUSED,
    QUEUED,
    RUNNING,
    TIMED_OUT,
    WAITING,
)

HALTED = frozenset((FAILED, TIMED_OUT))
FIRST_TOKEN_AFTER_RESET = 1


class Store:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.without = setup.without
        # settled_by and settled_token are only ever read after a lost reply; without one they only cost states.
        self.signs = setup.budget.lost_replies > 0
        self.cells_used: set[tuple[str, str]] = set()  # of the settle table

    # -- lanes: all jobs of a setup share one --

    def holds_lane(self, row: Row) -> bool:
        """Running (an orphan too), waiting, paused or halting: the lane is blocked, wherever the job stands."""
        match row.state:
            case "running":
                return row.owner != NOBODY or "an orphan holds its lane" not in self.without
            case "paused":
                return "a paused job holds its lane" not in self.without
            case "waiting":
                return "a waiting job holds its lane" not in self.without
            case "failed" | "timed_out":
                return row.halts and "a halting failure holds its lane" not in self.without
        return False

    def is_head(self, rows: tuple[Row, ...], job: int) -> bool:
        """The lane's head: the started job that still keeps the lane, else the first in order. A head that
        is not due blocks the lane: the next one must not overtake a retry."""
        mine = self._place(rows[job], job)
        for other, row in enumerate(rows):
            if other == job:
                continue
            if self.holds_lane(row):
                return False
            blocks = row.due or "a head in backoff holds its lane" not in self.without
            if row.state is QUEUED and blocks and self._place(row, other) < mine:
                return False
        return True

    def _place(self, row: Row, job: int) -> tuple[bool, int]:
        started_first = row.keeps_lane and "a started job keeps its lane" not in self.without
        return (not started_first, job)

    # -- grants --

    def can_claim(self, rows: tuple[Row, ...], job: int) -> bool:
        row = rows[job]
        if row.state is not QUEUED:
            stale = (
                "claim takes queued rows only" in self.without and row.state is RUNNING and row.attempt == 1
            )
            return stale and row.owner != NOBODY
        return row.due and (len(rows) == 1 or self.is_head(rows, job))

    def claim(self, row: Row, owner: int) -> Row:
        token = row.token if "claim moves the token on" in self.without else row.token + 1
        if "the token is never reset" in self.without:
            token = FIRST_TOKEN_AFTER_RESET
        return row._replace(
            state=RUNNING,
            token=token,
            attempt=row.attempt + 1,
            owner=owner,
            lease=HELD,
            expiry=0,
            site=NOWHERE,
            marked=False,
            granted=max(token, row.granted),
            keeps_lane=True,
            left_lease=False,
        )

    def can_adopt(self, row: Row, serves: int) -> bool:
        if row.state is not RUNNING:
            return False
        if row.owner != NOBODY and "adopt takes orphans only" not in self.without:
            return False
        if row.flag == CANCEL and "a cancelled orphan is adopted" in self.without:
            return False
        if row.site == NOWHERE:  # nobody can say that it serves a site that is not named
            return False
        return row.site == serves or "adopt serves its own site only" in self.without

    def adopt(self, row: Row, owner: int) -> Row:
        token = row.token if "adopt moves the token on" in self.without else row.token + 1
        return row._replace(
            token=token,
            owner=owner,
            lease=HELD,
            expiry=0,
            granted=max(token, row.granted),
            left_lease=False,
        )

    # -- endings --

    def settle(self, row: Row, outcome: str, flag: int, signer: int) -> Row:
        """Through the one table. `flag` is the row's own, unless a mutant decides with an older one."""
        setup, without = self.setup, self.without
        failures, crashes = row.failures, row.crashes
        match outcome:
            case "failure" | "attempt time-out" | "vanished":
                failures += 1
            case "lost":
                crashes = 1 if row.kept and "progress sets the crashes back" not in without else crashes + 1
            case "pause raised":
                flag = max(flag, PAUSE)
        left = failures < setup.max_attempts and crashes < setup.max_crashes
        if outcome == "lost" and row.kept:
            row = row._replace(kept=False)
        line = self._line(row, outcome, left)
        self.cells_used.add((line, FLAGS[flag]))
        state = self._mutated(EXPECTED[line, FLAGS[flag]], line, flag)
        # Only a grant moves the token on. An ended run has no lease, so nothing can match its token any more.
        token = 0 if "an ending carries the token" in without else row.token
        verb = "reap" if outcome == "lost" else "detach" if state is ORPHAN else "settle"
        left_lease = f"{verb} takes the lease away" in without
        if state is ORPHAN:
            settled = row._replace(owner=NOBODY, lease=HELD, expiry=0, token=token, left_lease=left_lease)
            if "an adopted loss costs nothing" in without:
                settled = settled._replace(crashes=crashes)
        else:
            settled = row._replace(
                state=state,
                token=token,
                failures=failures,
                crashes=crashes,
                owner=NOBODY,
                lease=HELD,
                expiry=0,
                flag=row.flag if "settle clears the flag" in without else NO_FLAG,
                due=not (state is QUEUED and setup.backoff and outcome in ("failure", "snooze", "lost")),
                question=self._question(row, outcome, state),
                keeps_lane=state not in FINAL and not (state in HALTED and not row.halts),
                left_lease=left_lease,
            )
        if not self.signs:
            return settled
        return settled._replace(settled_by=signer, settled_token=row.token)

    def _line(self, row: Row, outcome: str, left: bool) -> str:
        """The line of the table that an outcome falls on, with the row as it is under the lock."""
        without, has_site = self.without, row.site != NOWHERE
        match outcome:
            case "failure" | "vanished":
                return "failure, retries left" if left else "failure, exhausted"
            case "attempt time-out":
                return "attempt time-out, retries left" if left else "attempt time-out, exhausted"
            case "pause raised":
                return "stopped"
            case "detached":
                if "a drained external run becomes an orphan" in without:
                    return "handed back"
                return "external run at drain" if has_site else "handed back"
            case "lost":
                return self._line_of_a_loss(has_site, left)
        return outcome

    def _line_of_a_loss(self, has_site: bool, left: bool) -> str:
        """A stored site rules over on_lost: something may be alive there. Without one, nothing can be."""
        without, on_lost = self.without, self.setup.on_lost
        if has_site and "a lost external run is not failed" in without:
            return "lost, on_lost=fail"
        if has_site and "a lost external run becomes an orphan" not in without:
            return "lost, on_lost=adopt"
        if on_lost == "adopt" and "a lost external run without a site is requeued" in without:
            return "lost, on_lost=adopt"
        if on_lost == "fail":
            return "lost, on_lost=fail"
        return "lost, on_lost=retry" if left else "failure, exhausted"

    def _mutated(self, state: str, line: str, flag: int) -> str:
        without = self.without
        if line == "failure, retries left":
            if flag == CANCEL and "a cancelled run is not retried" in without:
                return QUEUED
            if flag == PAUSE and "a paused run is not retried" in without:
                return QUEUED
        if line == "lost, on_lost=retry" and flag and "a lost run with a flag is not requeued" in without:
            return QUEUED
        return state

    def _question(self, row: Row, outcome: str, state: str) -> int:
        if state in FINAL:
            return NO_QUESTION
        if outcome == "question" and state in (WAITING, PAUSED):
            return ASKED
        # An answer outlives a crash: it is in the job's ledger. A question still open is asked again by the next run.
        return row.question
