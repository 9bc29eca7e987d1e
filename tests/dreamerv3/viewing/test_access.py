"""The pages by keyboard, on a narrow screen, and as axe-core judges them."""

import os

import pytest

from dreamerv3.commands import plot, report

TABS = ("curves", "media", "settings", "health")
READY = {
    "curves": ".card[data-points='80']",
    "media": "#media video",
    "settings": "#settings-table td",
    "health": "#health td",
}
WIDE, NARROW = 1280, 420
SCORE = ".card[data-key='episode/score']"

pytestmark = pytest.mark.slow


@pytest.fixture
def faults():
    """What axe-core finds wrong with a page."""
    if not os.environ.get("CI"):  # There it has to be.
        pytest.importorskip("axe_playwright_python")
    from axe_playwright_python.sync_playwright import Axe

    def find(page):
        found = Axe().run(page).response["violations"]
        return [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in found]

    return find


@pytest.fixture
def bad(make_run):
    """A run that cannot be read."""
    os.mkfifo(make_run("with a long name " * 5).path / "metrics.jsonl")


def overflow(page):
    """Pixels by which the page is wider than the screen."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def show(page, width, theme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("tab", TABS)
def test_screens(page, bad, address, faults, tab, width, theme):
    show(page, width, theme)
    page.goto(f"{address}#tab={tab}")
    page.wait_for_selector(READY[tab])
    if width == NARROW:
        assert not page.is_visible("#runs")
        page.click("#menu")
    page.wait_for_selector("#runs .error")
    assert overflow(page) == 0
    assert faults(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("command", [report, plot])
def test_files(page, runs, faults, tmp_path, command, width, theme):
    path = tmp_path / "page.html"
    command.run([str(runs[0].path), "-o", str(path)])
    show(page, width, theme)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-chart] canvas")
    for summary in page.locator("summary").all():
        summary.click()
    assert overflow(page) == 0
    assert faults(page) == []


def test_rows_by_keyboard(page, address, until):
    page.goto(address)
    page.wait_for_selector(f"{SCORE}[data-points='80']")
    first, second = page.locator("#runs button").all()
    assert page.get_by_role("button", name="seed0", pressed=True).count() == 1
    page.focus("#none")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{SCORE}[data-points='40']")
    assert first.get_attribute("aria-pressed") == "false"
    page.keyboard.press("ArrowDown")  # The list was made anew and kept the focus.
    assert second.evaluate("node => node === document.activeElement")
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Home")
    page.keyboard.press("Shift+Enter")
    until(page, "document.querySelectorAll('#runs [aria-pressed=true]').length === 1")
    assert first.get_attribute("aria-pressed") == "true"
    page.focus("#keys-none")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.wait_for_selector(".card[data-key='episode/length']", state="detached")


def test_focus_stays_when_news_arrive(page, address, runs):
    page.goto(address)
    page.wait_for_selector(f"{SCORE}[data-points='80']")
    page.focus("#runs li:nth-child(1) button")
    runs[1].add(9000, 1.7e9 + 500, episode__score=9.0)
    page.wait_for_selector(f"{SCORE}[data-points='81']")
    assert "seed0" in page.evaluate("document.activeElement.textContent")


def test_read_out_by_keyboard(page, address):
    page.goto(address)
    page.wait_for_selector(f"{SCORE}[data-points='80']")
    page.focus(f"{SCORE} canvas")
    page.keyboard.press("ArrowLeft")
    tip = page.locator(f"{SCORE} .tip")
    tip.wait_for(state="visible")
    later = tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text() != later
    page.keyboard.press("Tab")
    tip.wait_for(state="hidden")


def test_tabs_by_keyboard(page, address):
    page.goto(address)
    page.wait_for_selector(READY["curves"])
    page.focus("#tab-curves")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY["media"])
    assert page.get_attribute("#tab-media", "aria-selected") == "true"
    assert not page.is_visible("#curves")


def test_meanings(page, address):
    page.goto(address)
    page.wait_for_selector(f"{SCORE} .about >> text=This is the learning curve.")
    title = page.get_attribute("#keys [data-row='train/loss/total']", "title")
    assert "Sum of all losses" in title
    label = page.get_attribute(f"{SCORE} canvas", "aria-label")
    assert label.startswith("episode/score over steps. Last values: seed0 3.")
    page.click("#tab-media")
    page.wait_for_selector("#media-about >> text=Top row: what happened.")


def test_empty_charts_are_hidden(page, address, runs, until):
    runs[0].add(100, 1.7e9, fps__policy=None)
    page.goto(f"{address}#keys=episode/score,fps/policy")
    page.wait_for_selector("text=No values of these runs: fps/policy")
    assert not page.is_visible(".card[data-key='fps/policy']")
    runs[0].add(200, 1.7e9 + 1, fps__policy=7)
    page.wait_for_selector(".card[data-key='fps/policy']", state="visible")
    until(page, "!document.querySelector('#curves > .note:not([hidden])')")


def test_raw_values_are_inside_the_axis(page, address, runs):
    runs[0].add(4100, 1.7e9 + 60, episode__score=1000.0)  # An outlier.
    page.goto(f"{address}#smooth=0.95&keys=episode/score")
    page.wait_for_selector(f"{SCORE}[data-points='81']")
    area = page.evaluate("[...curveCards.values()][0].chart.extent()")
    assert area["high"] > 1000
    assert area["low"] <= 0


class Gate:
    """Holds requests back until it is opened."""

    def __init__(self, page, pattern):
        self.held = []
        self.is_open = False
        page.route(pattern, self.handle)

    def handle(self, route):
        if self.is_open:
            route.continue_()
        else:
            self.held.append(route)

    def open(self):
        self.is_open = True
        for route in self.held:
            route.continue_()


def test_loading_is_said(page, address):
    state, curves = (Gate(page, f"**/api/{name}*") for name in ("state", "curves"))
    page.goto(address)
    page.wait_for_selector("#curves >> text=Loading")
    page.wait_for_selector("#runs >> text=loading")
    state.open()
    page.wait_for_selector(f"{SCORE}[aria-busy='true'] >> text=loading")
    curves.open()
    page.wait_for_selector(f"{SCORE}[aria-busy='false'][data-points='80']")


def test_a_bad_run_says_why(page, address, runs):
    path = runs[0].path / "metrics.jsonl"
    path.unlink()
    os.mkfifo(path)
    page.goto(address)
    text = "⚠ metrics.jsonl: not a regular file"
    page.wait_for_selector(f"#runs li:nth-child(1) .error >> text={text}")
    assert page.locator("#runs .error").count() == 1
    page.wait_for_selector(".card[data-key='episode/length'][data-points='40']")
