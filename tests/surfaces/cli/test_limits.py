"""`limits slots` and `limits rates` from the command line."""

from __future__ import annotations

from leasehold import Slot
from leasehold.surfaces.cli.options import acting


def test_slots_are_set_and_listed_with_their_holders(app, here):
    assert here("limits", "slots", "--json").lines == []
    assert here("limits", "slots", "set", "browser", "2").code == 0

    @app.task(slots={"browser": Slot(units=2)})
    def wide() -> None: ...

    job = wide.enqueue()
    app.__internals__.store.claim("host:1:aa", ["default"], 5)
    for command in (("limits", "slots"), ("limits", "slots", "list")):
        (row,) = here(*command, "--json").lines
        assert (row["name"], row["limit"], row["used"]) == ("browser", 2, 2)
        assert row["holders"] == [{"job_id": job.id, "units": 2, "task": "wide", "worker": "host:1:aa"}]
    assert job.id in here("limits", "slots").out
    assert here("limits", "slots", "set", "browser", "5", "--json").json == {"name": "browser", "limit": 5}


def test_rates_are_set_closed_and_opened(app, here):
    assert here("limits", "rates", "set", "api", "60/min", "--burst", "3").code == 0
    (row,) = here("limits", "rates", "list", "--json").lines
    assert (row["key"], row["limit"], row["burst"], row["next_in"]) == ("api", "60/min", 3, 0)
    assert here("limits", "rates").out.split()[-4:] == ["api", "60/min", "3", "now"]
    assert here("limits", "rates", "close", "api", "--for", "2m", "--reason", "429").code == 0
    (row,) = here("limits", "rates", "--json").lines
    assert (row["closed"], row["closed_by"], row["closed_reason"]) == (True, acting(None), "429")
    assert 100 < row["next_in"] <= 120
    assert f"closed by {acting(None)} until" in here("limits", "rates").out
    assert here("limits", "rates", "open", "api", "--json").json == {"key": "api", "changed": True}
    assert here("limits", "rates", "open", "api").out == "rate api was not closed\n"


def test_what_is_wrong_is_told_with_the_remedy(app, here):
    for command in (
        ("limits", "rates", "set", "api", "often"),
        ("limits", "rates", "close", "nobody"),
        ("limits", "rates", "open", "nobody"),
        ("limits", "slots", "set", "browser", "-1"),
    ):
        assert here(*command).code == 2
    assert "60/min" in here("limits", "rates", "set", "api", "often").err
    here("limits", "slots", "set", "one", "1")
    assert "is a slot already" in here("limits", "rates", "set", "one", "1/s").err
