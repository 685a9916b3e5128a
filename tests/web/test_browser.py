"""The page in a real Chromium: over a living daemon, and with the demo's month in it, light and
dark, from a phone to a wall."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.daemons import eventually
from tests.tools.living import Living
from tests.web.company import served

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip
PATIENCE = 60_000
TOKEN = "operate-with-this-token"

TASKS = """
[[task]]
name = "bad"
cron = "0 0 1 1 *"
command = ["sh", "-c", "echo fine; echo '<b>oops</b>' >&2; exit 3"]

[[task]]
name = "slow"
cron = "0 0 1 1 *"
command = ["sh", "-c", "i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo line $i; sleep 0.2; done"]

[[task]]
name = "<img src=x onerror=alert(1)>"
description = "<script>alert(2)</script>"
cron = "0 0 1 1 *"
command = ["sh", "-c", "echo '<script>alert(3)</script>'; printf '\\\\033[31mred\\\\033[0m\\\\n'; exit 1"]

[[task]]
name = "calm"
cron = "0 0 1 1 *"
command = ["true"]
"""


class Eyes:
    """Pages in which nothing goes wrong unseen: errors of the console, and requests to strangers."""

    def __init__(self, browser, base: str) -> None:
        self._browser = browser
        self.base = base
        self.wrong: list[str] = []

    def page(self, *, width: int = 1440, dark: bool = False, script: bool = True):
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        page.on("request", lambda request: self._request(request.url))
        return page

    def _console(self, message) -> None:
        if message.type in ("error", "warning") and "409" not in message.text:
            self.wrong.append(f"{message.type} {message.text}")

    def _request(self, url: str) -> None:
        if not url.startswith(self.base):
            self.wrong.append(f"asked {url}")


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path, TASKS) as daemon:
        daemon.start()
        daemon.wait_for("DaemonStarted")
        yield daemon


@pytest.fixture
def eyes(chromium, living: Living, tmp_path: Path) -> Iterator[Eyes]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"operate ada {TOKEN}\n")
    tokens.chmod(0o600)
    with served(living.state, "--token-file", str(tokens)) as base:
        seen = Eyes(chromium, base)
        yield seen
        assert seen.wrong == []


def until(page, expression: str) -> None:
    """Wait for it. Not by the tool's own means, which the policy of the page forbids."""
    eventually(lambda: page.evaluate(expression))


def signed_in(eyes: Eyes, **options):
    page = eyes.page(**options)
    page.goto(f"{eyes.base}/")
    page.wait_for_url("**/sign-in")
    page.wait_for_selector("input[name=token]:focus")  # given with the first frame
    field = page.get_by_label("Token")
    field.fill(TOKEN)  # as a whole: single keys can go astray while a busy machine draws
    assert field.input_value() == TOKEN
    field.press("Enter")
    page.wait_for_url(f"{eyes.base}/")
    return page


def cronpoll(living: Living, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cronpoll", *arguments, "--state-dir", str(living.state)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def test_a_failing_task_turns_red_without_reload_and_a_killed_daemon_is_seen(
    eyes: Eyes, living: Living
) -> None:
    page = signed_in(eyes)
    page.wait_for_selector("#tasks tr")
    page.evaluate("window.same = true")
    cronpoll(living, "run", "bad")
    page.wait_for_selector('[id="t-bad"] .bad')
    assert "bad is failing." in page.inner_text("h1")
    living.process.kill()
    until(page, "document.querySelector('h1').innerText.includes('not been running')")
    assert page.evaluate("window.same"), "no reload"


def test_output_streams_and_a_run_is_started_and_stopped_by_keyboard(
    eyes: Eyes, living: Living
) -> None:
    page = signed_in(eyes)
    page.goto(f"{eyes.base}/task?name=slow")
    page.get_by_role("link", name="Run", exact=True).press("Enter")
    page.wait_for_url("**/do?*")
    page.locator("button:focus").press("Enter")
    page.wait_for_url("**/task?*")
    page.locator("#latest a").first.press("Enter")
    page.wait_for_url("**/run?*")
    until(page, "document.querySelector('#lines').rows.length > 3")
    before = page.evaluate("document.querySelector('#lines').rows.length")
    until(page, f"document.querySelector('#lines').rows.length > {before + 3}")
    texts = page.evaluate(
        "[...document.querySelector('#lines').rows].map(row => row.cells[2].innerText)"
    )
    numbers = [int(text.split()[1]) for text in texts]
    assert numbers == list(range(1, len(numbers) + 1)), "each line once, in order"
    page.get_by_role("link", name="Stop").press("Enter")
    page.wait_for_url("**/do?*")
    page.locator("button:focus").press("Enter")
    page.wait_for_url("**/task?*")
    living.wait_for("TaskRunStopped")


def test_suspending_by_keyboard_is_recorded_with_who_asked(eyes: Eyes, living: Living) -> None:
    page = signed_in(eyes)
    page.goto(f"{eyes.base}/task?name=calm")
    page.get_by_role("link", name="Suspend").press("Enter")
    page.wait_for_url("**/do?*")
    page.get_by_label("Why").fill("storage <i>move</i>")
    page.get_by_label("Why").press("Enter")
    page.wait_for_url("**/task?*")
    until(page, "document.querySelector('h1').innerText.includes('Suspended')")
    said = [json.loads(line) for line in cronpoll(living, "journal", "dump").splitlines()]
    (event,) = [each for each in said if each["event"] == "TaskSuspended"]
    assert event["orderedBy"]["askedBy"] == "ada"
    assert event["reason"] == "storage <i>move</i>"


def test_everything_works_without_javascript(eyes: Eyes, living: Living) -> None:
    page = signed_in(eyes, script=False)
    page.goto(f"{eyes.base}/?q=bad")
    assert page.locator("#tasks tbody tr").count() == 1
    page.goto(f"{eyes.base}/do?what=run&task=bad")
    page.get_by_role("button", name="Start it").click()
    page.wait_for_url("**/task?*")
    living.wait_for("TaskRunFailed")

    def known() -> bool:  # the page has read what the daemon has written
        page.reload()
        return page.locator("#latest a").count() > 0

    eventually(known)
    page.locator("#latest a").first.click()
    assert "<b>oops</b>" in page.inner_text("#lines")

    def ended() -> bool:
        page.reload()
        return "exit" in page.inner_text("h1")

    eventually(ended)


def test_names_descriptions_and_output_stay_text(eyes: Eyes, living: Living) -> None:
    """A script that ran would ask for a dialog, and one that was stopped would be in the console."""
    name = "<img src=x onerror=alert(1)>"
    cronpoll(living, "run", name)
    page = signed_in(eyes)
    page.on("dialog", lambda dialog: eyes.wrong.append(f"dialog {dialog.message}"))
    page.get_by_role("link", name=name, exact=True).first.click()
    page.wait_for_url("**/task?*")
    assert "<script>alert(2)</script>" in page.inner_text("main")
    page.locator("#latest a:has-text('failed')").first.click()
    page.wait_for_url("**/run?*")
    texts = page.locator("#lines td:last-child").all_inner_texts()
    assert texts == ["<script>alert(3)</script>", "red"]
    page.goto(f"{eyes.base}/search?q=%3Cscript%3E")
    assert "<script>alert(3)</script>" in page.inner_text("main")
    assert page.locator("main img, main script").count() == 0


# -- the demo --------------------------------------------------------------------------------------

DEMO = {
    "overview": "/",
    "wall": "/?wall",
    "timeline": "/timeline",
    "six hours": "/timeline?span=6h",
    "seven days": "/timeline?span=7d",
    "task": "/task?name=nightly-backup",
    "dense task": "/task?name=payment-status",
    "plan": "/plan",
    "spread": "/spread",
    "audit": "/audit",
    "manual": "/manual?page=contributing",
    "find": "/search?q=error",
    "nothing to find": "/search",
    "why": "/why?task=nightly-backup&at=2026-10-28T01:00:00Z",
    "run": "",
    "order": "/do?what=suspend&task=crm-sync",
    "sign in": "/sign-in",
}


@pytest.fixture(scope="module")
def demo(chromium) -> Iterator[Eyes]:
    command = [sys.executable, "-m", "cronpoll", "demo", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        lines = iter(process.stdout.readline, b"")
        address = next(line for line in lines if b"http" in line).decode()
        base = next(word for word in address.split() if word.startswith("http")).rstrip("/")
        eyes = Eyes(chromium, base)
        page = eyes.page()
        page.goto(base)
        page.wait_for_selector("#tasks tr")
        yield eyes
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize("name", DEMO)
def test_every_page_of_the_demo_is_well_made(demo: Eyes, name: str) -> None:
    """No serious finding of axe, nothing wider than the screen, in light and dark."""
    axe_module = pytest.importorskip("axe_playwright_python.sync_playwright")
    demo.wrong.clear()
    for width, dark in ((1440, False), (1440, True), (360, False), (360, True), (2560, True)):
        page = demo.page(width=width, dark=dark)
        if name == "run":
            page.goto(f"{demo.base}{DEMO['task']}")
            page.locator("#latest a").first.click()
            page.wait_for_selector("#lines tr")
        else:
            page.goto(f"{demo.base}{DEMO[name]}")
        page.wait_for_selector("h1, article")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{width} wide"
        if (width, dark) not in ((1440, False), (1440, True), (360, False)):
            page.context.close()
            continue
        found = axe_module.Axe().run(page).response["violations"]
        bad = [each for each in found if each["impact"] in ("serious", "critical")]
        where = [(each["id"], each["nodes"][0]["html"][:200]) for each in bad]
        assert where == [], f"{width} wide, {'dark' if dark else 'light'}"
        page.context.close()
    assert demo.wrong == []


def test_from_every_page_ctrl_k_finds_what_runs_have_printed(demo: Eyes) -> None:
    demo.wrong.clear()
    page = demo.page()
    for path in ("/audit", "/timeline", "/"):
        page.goto(f"{demo.base}{path}")
        page.keyboard.press("Control+k")
        assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.type("PG_DUMP: error")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=*")
    assert "lines of output" in page.inner_text("h1")
    page.get_by_role("link", name="The run of nightly-backup").first.click()
    page.wait_for_url("**/run?*")
    texts = page.locator("#lines td:last-child").all_inner_texts()
    assert {text.partition(": ")[2].partition(":")[0] for text in texts} == {"error"}
    assert demo.wrong == []


def test_a_mark_says_why_and_arrows_go_from_mark_to_mark(demo: Eyes) -> None:
    page = demo.page()
    page.goto(f"{demo.base}/timeline")
    page.locator("a.mark-link:has(+ a.mark-link)").first.focus()
    page.wait_for_selector("#tip")
    href = "document.activeElement.getAttribute('href')"  # the row itself may be drawn anew
    page.evaluate("window.next = document.activeElement.nextElementSibling.getAttribute('href')")
    page.keyboard.press("ArrowRight")
    until(page, f"{href} === window.next")
    page.wait_for_selector("#tip")
    page.keyboard.press("Escape")
    assert page.locator("#tip").count() == 0
    page.keyboard.press("Enter")
    page.wait_for_url("**/why?*")
