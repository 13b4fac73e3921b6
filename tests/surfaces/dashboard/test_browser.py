"""In a real browser: every page, every button, live, by keyboard, without JavaScript, and for everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from leasehold import Leasehold
from leasehold.surfaces.dashboard.pages import ALL
from tests.surfaces.dashboard.browsing import PATIENCE, Screen, overflow, screen, serious_findings
from tests.surfaces.dashboard.conftest import Dashboard
from tests.surfaces.dashboard.sample import HOSTILE, QUIET, fill, name_of

pytestmark = [pytest.mark.slow, pytest.mark.one_store("sqlite"), pytest.mark.xdist_group("browser")]

LOOKS = {
    "at a desk by day": {},
    "on a phone at night": {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
}


@pytest.fixture(autouse=True, scope="module")
def _patience() -> None:
    expect.set_options(timeout=PATIENCE)


@pytest.fixture
def admin_screen(chromium: Browser, dashboard: Dashboard) -> Iterator[Screen]:
    with screen(chromium, dashboard.url, dashboard.server.token("admin")) as made:
        yield made
        made.check_quiet()


def paths_of(jobs: list[str], text: str = QUIET) -> list[str]:
    """What shows the jobs that were filled in with this text: a finished, an asking and a failed one, and lists."""
    group = quote(name_of(text))
    lists = [f"/jobs?group={group}", f"/bulk?verb=cancel&group={group}", f"/groups?name={group}", "/system"]
    flows = [f"/jobs/{job}/flow" for job in (jobs[2], jobs[5])]  # alone, and the first of four
    return [*(f"/jobs/{job}" for job in jobs[:3]), *flows, *lists]


def paths_of_all() -> list[str]:
    """Every other page."""
    plain = [page.path for page in ALL if "{" not in page.path and page.path not in ("bulk", "system")]
    return [*(f"/{path}" for path in plain), "/jobs?state=failed&state=queued", "/system?examine=1"]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_every_page_is_quiet_fits_its_window_and_keeps_nobody_out(
    app: Leasehold, chromium: Browser, dashboard: Dashboard, look: dict[str, Any]
):
    jobs, token = fill(app), dashboard.server.token("admin")
    with screen(chromium, dashboard.url, token, **look) as made:
        for path in paths_of(jobs) + paths_of_all():
            page = made.open(path)
            expect(page.locator("h1")).to_be_visible()
            assert serious_findings(page) == [], (path, look)
            assert overflow(page) <= 0, (path, look)
            page.close()
        made.check_quiet()


@pytest.mark.timeout(600)
def test_nothing_that_a_user_or_a_job_has_written_is_run_or_breaks_the_layout(
    app: Leasehold, chromium: Browser, dashboard: Dashboard
):
    token = dashboard.server.token("admin")
    with screen(chromium, dashboard.url, token, viewport={"width": 700, "height": 800}) as made:

        def look_at(paths: list[str], what: str) -> None:
            for path in paths:
                page = made.open(path)
                expect(page.locator("h1")).to_be_visible()
                assert page.evaluate("window.hacked") is None, (path, what)
                assert page.locator("img, iframe, object").count() == 0, (path, what)
                assert overflow(page) <= 0, (path, what)
                page.close()

        for name, text in HOSTILE.items():
            look_at(paths_of(fill(app, text), text), name)
        look_at(paths_of_all(), "all")
        made.check_quiet()


def test_what_happens_to_jobs_is_seen_without_a_reload(app: Leasehold, admin_screen: Screen):
    page = admin_screen.open("/jobs")
    expect(page.locator("#live-word")).to_have_text("Live")
    job = app.enqueue("add", {"a": 1})
    row = page.locator(f"#row-{job.id}")
    expect(row).to_contain_text("queued")
    job.cancel()
    expect(row).to_contain_text("cancelled")
    one = admin_screen.open(f"/jobs/{app.enqueue('add', {'a': 2}, hold=True).id}")
    expect(one.locator("main > header .state")).to_have_text("on hold")
    app.get(one.locator("#job-id").inner_text()).release()
    expect(one.locator("main > header .state")).to_have_text("queued")


def test_it_rests_while_somebody_reads_or_writes_and_goes_on_afterwards(app: Leasehold, admin_screen: Screen):
    job = app.enqueue("add", {"a": 1})
    page = admin_screen.open(f"/jobs/{job.id}")
    word = page.locator("#live-word")
    expect(word).to_have_text("Live")
    page.locator("#ask-cancel summary").click()
    page.locator("#ask-cancel-reason").fill("half a sentence")
    expect(word).to_contain_text("Paused")
    job.pause()
    other = admin_screen.open(f"/jobs/{job.id}")  # by now the first has been told, too
    expect(other.locator("main > header .state")).to_have_text("paused")
    page.wait_for_timeout(2500)
    assert page.locator("main > header .state").inner_text() == "queued"
    assert page.locator("#ask-cancel-reason").input_value() == "half a sentence"
    page.locator("h1").click()
    expect(page.locator("main > header .state")).to_have_text("paused")
    expect(word).to_have_text("Live")
    page.locator("#job-id").select_text()
    expect(word).to_have_text("Paused while text is selected")
    page.evaluate("document.getSelection().removeAllRanges()")
    expect(word).to_have_text("Live")


def press(page: Page, verb: str, **fields: str) -> None:
    """Open the question behind a button, fill it in, and go on."""
    questions_box = page.locator(f"#ask-{verb}")
    questions_box.locator("summary").click()
    for name, text in fields.items():
        questions_box.locator(f"[name={name}]").fill(text)
    questions_box.locator("form button").click()
    expect(page.locator(".notice")).to_be_visible()


def test_a_job_is_steered_by_its_buttons(app: Leasehold, admin_screen: Screen):
    job = app.enqueue("add", {"a": 1}, hold=True)
    page = admin_screen.open(f"/jobs/{job.id}")
    shown = page.locator("main > header .state")
    press(page, "release")
    expect(shown).to_have_text("queued")
    press(page, "pause", reason="lunch")
    expect(shown).to_have_text("paused")
    press(page, "resume", args='{"a": 5}')
    expect(shown).to_have_text("queued")
    assert job.refresh().args == {"a": 5}
    press(page, "cancel", reason="enough")
    expect(shown).to_have_text("cancelled")
    press(page, "retry")
    expect(shown).to_have_text("queued")
    assert page.url.rpartition("/")[2] != job.id
    press(page, "cancel")
    expect(shown).to_have_text("cancelled")


def submit_each(made: Screen, path: str) -> list[str]:
    """Press every button of a page, each on the page as it is then; what each has said."""
    reported = []
    number = 0
    while True:
        page = made.open(path)
        forms = page.locator("form[action*='/do/']")
        if number >= forms.count():
            page.close()
            return reported
        form = forms.nth(number)
        _show(page, form)
        for field in form.locator("input:visible, textarea:visible, select:visible").all():
            _answer(field)
        form.locator("button").last.click()
        expect(page.locator(".notice, main h1").first).to_be_visible()
        notice = page.locator(".notice")
        reported.append(
            f"{form.get_attribute('action') if form.count() else ''}: {notice.inner_text() if notice.count() else ''}"
        )
        page.close()
        number += 1


def _show(page: Page, form: Locator) -> None:
    form.evaluate(
        "form => { for (let one = form; one; one = one.parentElement) if (one.tagName === 'DETAILS') one.open = true; }"
    )


def _answer(field: Locator) -> None:
    task = field.get_attribute("type") or ""
    if field.evaluate("field => field.tagName") == "SELECT":
        field.select_option(index=1 if field.locator("option").count() > 1 else 0)
    elif task in ("checkbox", "radio"):
        field.check()
    elif field.input_value() == "":
        field.fill(
            "5"
            if task == "number" or field.get_attribute("inputmode") == "numeric"
            else "1h"
            if "dur" in (field.get_attribute("name") or "")
            else "10/min"
            if field.get_attribute("name") == "limit"
            else "7"
        )


@pytest.mark.parametrize(
    "path",
    ["/workers", "/limits", "/schedules", "/lanes", "/groups?name=a%20plain%20text", "/questions", "/system"],
)
def test_every_button_of_a_page_does_something_or_says_why_not(
    app: Leasehold, chromium: Browser, dashboard: Dashboard, path: str
):
    fill(app)
    with screen(chromium, dashboard.url, dashboard.server.token("admin")) as made:
        reported = submit_each(made, path)
        assert all(not one.endswith(": ") for one in reported), reported
        if path not in ("/workers", "/system"):
            assert reported, "there are no buttons"
        made.check_quiet()


def test_many_jobs_are_steered_after_a_dry_run_and_a_typed_number(app: Leasehold, admin_screen: Screen):
    jobs = [app.enqueue("add", {"a": n}) for n in range(25)]
    other = app.enqueue("fail", {})
    page = admin_screen.open("/jobs?task=add&state=queued")
    page.get_by_role("link", name="Cancel…").click()
    expect(page.locator("h1")).to_have_text("Cancel 25 jobs")
    assert jobs[0].refresh().state == "queued"
    page.get_by_label("Reason").fill("clean up")
    page.get_by_label("Type 25 to confirm").fill("24")
    page.get_by_role("button", name="Cancel them").click()
    expect(page.locator(".notice")).to_contain_text("type 25")
    page.get_by_label("Type 25 to confirm").fill("25")
    page.get_by_role("button", name="Cancel them").click()
    expect(page.locator("main > header .state")).to_have_text("done")
    expect(page.locator("main")).to_contain_text("Changed 25 of 25 jobs")
    assert {job.refresh().state for job in jobs} == {"cancelled"}
    assert other.refresh().state == "queued"
    page.get_by_role("link", name="Back to the list").click()
    assert re.search(r"task=add", page.url)
    assert re.search(r"state=queued", page.url)


def test_reload_and_the_back_button_keep_the_filter(app: Leasehold, admin_screen: Screen):
    mine = app.enqueue("add", {"a": 1})
    mine.cancel()
    app.enqueue("fail", {})
    page = admin_screen.open("/jobs")
    page.get_by_label("cancelled", exact=True).check()
    page.get_by_label("Task").fill("add")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    address = page.url
    page.reload()
    assert page.url == address
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("cancelled", exact=True)).to_be_checked()
    page.locator("tbody tr a").first.click()
    expect(page.locator("#job-id")).to_have_text(mine.id)
    page.go_back()
    assert page.url == address
    expect(page.get_by_label("Task")).to_have_value("add")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_everything_can_be_done_by_the_keyboard(app: Leasehold, admin_screen: Screen):
    older, newer = app.enqueue("fail", {"text": "needle"}), app.enqueue("add", {"a": 1})
    page = admin_screen.open("/")
    keys = page.keyboard
    keys.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    keys.press("Enter")
    page.wait_for_url("**/#main")
    keys.press("g")
    keys.press("j")
    page.wait_for_url("**/jobs")
    keys.press("j")
    expect(page.locator("tr.at")).to_have_attribute("id", f"row-{newer.id}")
    keys.press("j")
    expect(page.locator("tr.at")).to_have_attribute("id", f"row-{older.id}")
    keys.press("k")
    expect(page.locator("tr.at")).to_have_attribute("id", f"row-{newer.id}")
    keys.press("/")
    keys.type("needle")
    keys.press("Enter")
    page.wait_for_url("**q=needle**")
    keys.press("j")
    keys.press("Enter")
    expect(page.locator("#job-id")).to_have_text(older.id)
    page.locator("#ask-cancel summary").focus()
    keys.press("Enter")
    keys.press("Tab")
    expect(page.locator("#ask-cancel-reason")).to_be_focused()
    keys.type("by hand")
    keys.press("Enter")
    expect(page.locator(".notice")).to_be_visible()
    assert older.refresh().state == "cancelled"
    keys.press("?")
    expect(page.locator("#keys")).to_be_visible()
    keys.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()


def test_pages_can_be_read_and_verbs_asked_for_without_javascript(
    app: Leasehold, chromium: Browser, dashboard: Dashboard
):
    jobs = fill(app)
    job = app.enqueue("add", {"a": 1})
    token = dashboard.server.token("admin")
    with screen(chromium, dashboard.url, token, java_script_enabled=False) as made:
        for path in paths_of(jobs) + paths_of_all():
            page = made.open(path)
            assert len(page.locator("main").inner_text()) > 40, path
            page.close()
        page = made.open(f"/jobs/{job.id}")
        press(page, "cancel", reason="no script")
        assert job.refresh().state == "cancelled"


def test_signing_in_and_out(app: Leasehold, chromium: Browser, dashboard: Dashboard):
    with screen(chromium, dashboard.url) as made:
        page = made.open("/jobs?state=queued")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert serious_findings(page) == []
        made.check_quiet()
        page.get_by_label("Token", exact=True).fill("lh_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown")
        page.get_by_label("Token", exact=True).fill(dashboard.server.token("read"))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
        assert page.url.endswith("/jobs?state=queued")
        expect(page.locator(".person")).to_contain_text("viewer")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
