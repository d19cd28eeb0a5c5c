"""Whole pages, as a browser and as a parser sees them."""

from __future__ import annotations

import functools
import html.parser
import re
import shutil

import pytest

from supcon_tf import reports
from tests.reports import run_files

# Everything that is wrong with a page, once its folded parts are open.
INSPECT = """() => {
  document.querySelectorAll('details').forEach(x => { x.open = true; });
  const width = document.documentElement.clientWidth;
  const drawn = [...document.querySelectorAll('svg:not(.mark), img')];
  const named = x => (x.getAttribute('aria-label') || x.alt || '').trim();
  const say = x => named(x) || x.outerHTML.slice(0, 80);
  const box = x => x.getBoundingClientRect();
  const scale = x => Math.hypot(x.getScreenCTM().c, x.getScreenCTM().d);
  const sizes = [...document.querySelectorAll('svg.figure text')].map(
    x => parseFloat(getComputedStyle(x).fontSize) * scale(x));
  const text = [...document.querySelectorAll('p, h1, h2, h3, h4, li, pre')];
  return {
    figures: drawn.length,
    overflow: document.documentElement.scrollWidth - width,
    hidden: drawn.filter(x => box(x).width < 20 || box(x).height < 20
      || !x.checkVisibility({visibilityProperty: true})).map(say),
    outside: [...drawn, ...document.querySelectorAll('figure'), ...text]
      .filter(x => box(x).width && !x.closest('.scroll')
        && (box(x).left < 0 || box(x).right > width + 0.5)).map(say),
    broken: [...document.images]
      .filter(x => !x.complete || !x.naturalWidth).map(say),
    unlabelled: drawn.filter(x => !named(x)).map(say),
    smallest: sizes.length ? Math.min(...sizes) : 99,
  };
}"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write, forty = run_files.write_run, tuple(f"class {i}" for i in range(40))
    hostile = root / "<b>&amp;'\""
    return {
        "supcon": write(root / "supcon", parts=run_files.ALL),
        "hostile": write(hostile, run_files.HOSTILE, seed=1, size=70),
        "many": write(root / "many", forty, epochs=1),
        "pretrained": write(root / "pretrained", parts=()),
    }


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """Writes a page by name, once: one run, several, and what is unusual."""
    root = tmp_path_factory.mktemp("pages")
    groups = {name: [runs[name]] for name in ("many", "pretrained")}
    groups["two"] = [runs["supcon"], runs["hostile"]]
    return functools.cache(
        lambda name: reports.write_report(groups[name], root / f"{name}.html")
    )


@pytest.fixture(scope="module")
def browser(request):
    if request.config.getoption("--quick"):
        pytest.skip("--quick: starts a process")
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on PATH")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.mark.slow(but=["two", "pretrained"])
@pytest.mark.parametrize("name", ["two", "many", "pretrained"])
def test_a_browser_shows_everything(browser, pages, name):
    address = f"file://{pages(name)}"
    page = browser.new_page()
    messages, requested = [], []
    page.on(
        "console",
        lambda message: messages.append(f"{message.type}: {message.text}"),
    )
    page.on("pageerror", lambda error: messages.append(f"error: {error}"))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        faults_and_sizes = page.evaluate(INSPECT)
        assert faults_and_sizes["figures"] >= 1
        assert faults_and_sizes["smallest"] >= 10, (
            "pixels of the smallest letters"
        )
        assert faults_and_sizes["overflow"] <= 0
        for fault in ("hidden", "outside", "broken", "unlabelled"):
            assert not faults_and_sizes[fault], (width, fault)
    page.close()
    assert not messages
    assert [url for url in requested if not url.startswith("data:")] == [
        address
    ]


class Outline(html.parser.HTMLParser):
    """Fails on tags that do not nest; collects ids, addresses and text."""

    VOID = {"meta", "link", "img", "br", "wbr"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.addresses, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"{tag}: doubled attribute"
        assert not [
            attribute for attribute in attributes if attribute.startswith("on")
        ]
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.addresses += [
            attributes[attribute]
            for attribute in ("href", "src")
            if attribute in attributes
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("name", ["two", "many", "pretrained"])
def test_pages_are_well_formed_and_self_contained(pages, name):
    text = pages(name).read_text()
    outline = Outline()
    outline.feed(text)
    assert not outline.open
    assert len(set(outline.ids)) == len(outline.ids)
    for address in outline.addresses:
        if address.startswith("#"):
            assert address[1:] in outline.ids
        else:
            assert address.startswith("data:")
    for reference in re.findall(r"url\(([^)]*)\)", text):
        assert reference[1:] in outline.ids
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert '<meta name="viewport"' in text
    assert "<title>" in text
    assert "default-src 'none'; style-src" in text


def test_names_from_data_stay_text(pages):
    text = pages("two").read_text()
    outline = Outline()
    outline.feed(text)
    words = "".join(outline.text)
    # Of classes, of a run, of files and of metrics.
    others = ("<b>&amp;'\"", "test/<i>", "a user's figure <&>")
    for name in (*run_files.HOSTILE, *others):
        assert name in words
    for tag in ("<script", "<i>"):
        assert tag not in text


def test_the_same_runs_give_the_same_bytes(pages, runs, tmp_path):
    page = reports.write_report([runs["many"]], tmp_path / "x/report.html")
    assert page.read_bytes() == pages("many").read_bytes()
    assert [file.name for file in page.parent.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_runs_of_one_name_are_told_apart(runs, tmp_path):
    same_end = tmp_path / "other" / "pretrained"
    same_end.parent.mkdir()
    same_end.symlink_to(runs["pretrained"])
    paths = [str(runs["pretrained"]), str(same_end)]
    text = reports.write_report(paths, tmp_path / "report.html").read_text()
    parent = runs["pretrained"].parent.name
    assert f"<h1>{parent}/pretrained and other/pretrained</h1>" in text
    # A stage by itself is called after its run too.
    stages = [runs["many"] / "linear", runs["supcon"] / "linear"]
    text = reports.write_report(stages, tmp_path / "report.html").read_text()
    assert "<h1>many/linear and supcon/linear</h1>" in text


def test_the_working_directory_and_a_run_given_twice_have_names(
    tmp_path, monkeypatch
):
    stage = tmp_path / "mine" / "linear"
    stage.mkdir(parents=True)
    (tmp_path / "mine" / "settings.flags").write_text("--epochs=3\n")
    (stage / "settings.flags").write_text("--name=linear\n")
    for folder, paths, title in (
        ("mine", ["."], "mine"),
        ("mine", ["linear"], "mine/linear"),
        ("mine/linear", ["."], "mine/linear"),
        ("mine/linear", [".."], "mine"),
        ("mine", [".", tmp_path / "mine"], "mine (1) and mine (2)"),
    ):
        monkeypatch.chdir(tmp_path / folder)
        page = reports.write_report(paths, tmp_path / "report.html")
        assert f"<h1>{title}</h1>" in page.read_text()


def test_broken_rules_are_named(runs, tmp_path):
    many, file = runs["many"], tmp_path / "report.html"
    with pytest.raises(ValueError, match="`runs` must name at least one"):
        reports.write_report([], file)
    with pytest.raises(ValueError, match="`runs` must be run directories, g"):
        reports.write_report([many, tmp_path], file)
    for names in (["a"], ["a", "a"]):
        with pytest.raises(ValueError, match="`names` must be 2 different"):
            reports.write_report([many, runs["supcon"]], file, names)
    assert not list(tmp_path.iterdir())
