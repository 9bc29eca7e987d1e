"""The page in a real browser: curves, metrics, videos, settings, live refresh."""

import pytest

from dreamerv3.viewing import report

SCORE = "[data-key='episode/score'].card"

# Pixels of a chart that are neither empty nor gray, as lines are.
COLORED = """node => {
  const canvas = node.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const {data} = pen.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const spread = Math.max(data[i], data[i + 1], data[i + 2])
      - Math.min(data[i], data[i + 1], data[i + 2]);
    if (data[i + 3] > 100 && spread > 60) count += 1;
  }
  return count;
}"""

pytestmark = pytest.mark.slow


def points(page, amount, card=SCORE):
    page.wait_for_selector(f"{card}[data-points='{amount}']")


def test_curves_are_drawn_and_switched(page, address):
    page.goto(address)
    points(page, 80)
    assert page.eval_on_selector(SCORE, COLORED) > 200
    page.click("#keys li[data-key='episode/length']")  # Was shown, is removed.
    page.wait_for_selector("[data-key='episode/length'].card", state="detached")
    page.click("#keys li[data-key='episode/length']")
    points(page, 80, "[data-key='episode/length'].card")
    page.click("#runs li")
    points(page, 40)
    page.click("#mode [data-value='mean']")
    page.click("#all")
    page.wait_for_selector(f"{SCORE} .legend >> text=2 seeds")
    page.click("#axis [data-value='time']")
    points(page, 80)
    assert "axis=time" in page.url
    page.reload()
    page.wait_for_selector(f"{SCORE} .legend >> text=2 seeds")


def test_read_out_and_zoom(page, address, until):
    page.goto(address)
    points(page, 80)
    box = page.locator(f"{SCORE} canvas.top").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    tip = page.locator(f"{SCORE} .tip")
    tip.wait_for(state="visible")
    assert "seed0" in tip.inner_text()
    assert tip.inner_text().startswith("step ")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle)
    page.mouse.up()
    page.wait_for_selector("#unzoom", state="visible")
    shown = int(page.wait_for_selector(SCORE).get_attribute("data-points"))
    until(page, "card => Number(card.dataset.points) < 40", page.query_selector(SCORE))
    page.click("#unzoom")
    points(page, 80)
    assert shown <= 80


def test_live_refresh_shows_a_new_point(page, address, runs):
    page.goto(address)
    points(page, 80)
    runs[0].add(9000, 1.7e9 + 500, episode__score=9.0)
    points(page, 81)
    page.wait_for_selector("#runs li >> text=9000")


def test_videos_play_and_step(page, address, until):
    page.goto(f"{address}#tab=media")
    page.wait_for_selector("#media video")
    assert page.locator("#media video").count() == 2
    until(page, "document.querySelector('#media video').currentTime > 0")
    assert "step 3,000 (3 of 3)" in page.inner_text("#media-label")
    page.click("#media-back")
    page.wait_for_selector("#media .card[data-step='2000']")
    page.evaluate(
        "const s = document.getElementById('media-step'); s.value = 0;"
        "s.dispatchEvent(new Event('input'))"
    )
    page.wait_for_selector("#media .card[data-step='1000']")
    page.click("#media-play")
    until(page, "document.querySelector('#media video').paused")
    until(page, "document.querySelector('#media video').readyState >= 2")
    before = page.evaluate("document.querySelector('#media video').currentTime")
    page.click("#frame-next")
    until(
        page,
        "before => document.querySelector('#media video').currentTime !== before",
        before,
    )
    page.select_option("#media-key", "note")
    page.wait_for_selector("#media pre >> text=a line of text")


def test_settings_differ_and_health(page, address):
    page.goto(f"{address}#tab=settings")
    row = page.locator("#settings-table tr.diff", has_text="batch_size")
    row.wait_for()
    assert row.locator("td").all_inner_texts() == ["batch_size", "16", "8", "9"]
    assert page.locator("#settings-table tr", has_text="task").count() == 0
    page.uncheck("#settings-only")
    page.wait_for_selector("#settings-table tr >> text=bounce_32")
    page.click("[data-tab='health']")
    page.wait_for_selector("#health tr >> text=seed1")
    assert page.locator("#health .role .dot.on").count() == 2
    assert page.locator("#health .role .dot.off").count() == 2
    assert page.locator("#health .role b").all_inner_texts() == ["↻1"]


def test_report_opens_without_a_server(page, runs, tmp_path, until):
    path = tmp_path / "report.html"
    report.write(runs[0].path, path)
    page.goto(path.as_uri())
    chart = "[data-chart='episode/score']"
    page.wait_for_selector(f"{chart} canvas")
    until(page, f'({COLORED})(document.querySelector("{chart}")) > 100')
    until(page, "document.querySelector('video').readyState >= 2")
