"""`archsim report`: one file, safe whatever a spec says, the same bytes twice, and right about what it shows."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from archsim import api
from archsim.base.errors import OutputRefused, UsageError
from archsim.base.units import format_bytes, format_seconds
from archsim.render.figures import plotlyjs
from archsim.render.figures.curves import front, rate_of
from archsim.render.html import candidates as study
from archsim.render.html import document, effects, workloads
from archsim.render.html import headline as answer
from archsim.render.html import lineage as descent
from archsim.render.html import page_size as fitting
from archsim.render.html.environment import prose
from archsim.render.html.markup import link, safe
from archsim.render.pages.cost import usd

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "reports" / "examples"
VOID = {"meta", "input", "br", "link", "img", "hr"}
LONG = "N" * 10_000
MANY = ("llama2-7b", "llama3-8b", "llama2-13b", "gpt2-xl", "mixtral-8x7b")
ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


@dataclass
class Page(HTMLParser):
    """A parsed page: its elements with their attributes, and what each script holds."""

    text: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    scripts: list[tuple[dict[str, str], str]] = field(default_factory=list)
    styles: str = ""
    open_: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the element; one that holds others stays open."""
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag == "script":
            self.scripts.append((found, ""))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open_.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The element that ends is the last that was opened."""
        if tag not in VOID and self.open_ and (tag == self.open_[-1]):
            self.open_.pop()
        else:
            assert self.get_starttag_text().endswith("/>") or tag in VOID, f"stray </{tag}>"  # type: ignore[union-attr]

    def handle_data(self, data: str) -> None:
        """What scripts and styles hold."""
        if self.open_ and self.open_[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        if self.open_ and self.open_[-1] == "style":
            self.styles += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """Attributes of every element of a kind."""
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def full() -> Page:
    """A page with charts: two models on two devices."""
    return Page(api.report(["llama2-7b", "mixtral-8x7b"], "h100,rtx-4090", batch=4).html)


@pytest.fixture(scope="module")
def light() -> Page:
    """The same with tables alone."""
    return Page(api.report(["llama2-7b", "mixtral-8x7b"], "h100,rtx-4090", batch=4, light=True).html)


# ---------------------------------------------------------------------- one file
def test_sizes(full: Page, light: Page) -> None:
    """At most 700 kB beside plotly.js, and 300 kB without charts."""
    assert len(full.text.encode()) - len(plotlyjs.source_text().encode()) <= 700_000
    assert len(light.text.encode()) <= 300_000


def test_light_has_no_script(light: Page) -> None:
    """Nothing that could run, and no chart that would need it."""
    assert not light.scripts and 'class="chart"' not in light.text


@pytest.mark.parametrize("name", ["full", "light"])
def test_nothing_is_fetched(name: str, request: pytest.FixtureRequest) -> None:
    """No element that loads, no address in a style, and a policy under which nothing could be."""
    page: Page = request.getfixturevalue(name)
    assert {tag for tag, _ in page.tags}.isdisjoint({"link", "img", "iframe", "object", "embed", "base", "video"})
    assert all("src" not in attrs and "srcset" not in attrs and "xlink:href" not in attrs for _, attrs in page.tags)
    assert "url(" not in page.styles and "@import" not in page.styles
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy and "http" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_the_scripts_are_those_that_the_policy_names(full: Page) -> None:
    """Their hashes stand in the policy, so no other script runs; the data of charts is valid JSON."""
    running = [text for attrs, text in full.scripts if attrs.get("type") != "application/json"]
    assert len(running) == 2
    for text in running:
        assert f"'{plotlyjs.digest(text)}'" in full.text
    assert set(charts_of(full)["charts"]) >= {"throughput", "memory", "time-decode", "time-prefill", "roofline-0"}


def charts_of(page: Page) -> Any:
    """What the page's script draws."""
    return json.loads(next(text for attrs, text in page.scripts if attrs.get("id") == "charts"))


def test_plotly_from_its_servers_is_named_by_its_hash() -> None:
    """One address, of the very version, with an integrity hash; nothing else may be loaded."""
    text = api.report("llama3.2-1b", "h100", plotlyjs="cdn").html
    page = Page(text)
    (script,) = [attrs for attrs, _ in page.scripts if "src" in attrs]
    assert re.fullmatch(r"https://cdn\.plot\.ly/plotly-[\d.]+\.min\.js", script["src"])
    assert script["integrity"] == plotlyjs.digest(plotlyjs.source_text()) and script["crossorigin"] == "anonymous"
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert re.findall(r"https?://[^ ;]*", policy) == [script["src"]] and len(text.encode()) <= 700_000


def test_a_copy_beside_the_page_is_reused_and_another_refused(tmp_path: Path) -> None:
    """`directory` writes plotly.js once; an identical copy stays, another one is left alone and nothing is written."""
    report = api.report("llama3.2-1b", "h100", plotlyjs="directory")
    report.write(tmp_path / "a.html")
    copy = tmp_path / plotlyjs.NAME
    assert copy.read_text("utf-8") == plotlyjs.source_text() and 'src="plotly.min.js"' in report.html
    before = copy.stat().st_mtime_ns
    report.write(tmp_path / "b.html")
    assert copy.stat().st_mtime_ns == before
    copy.write_text("other", "utf-8")
    with pytest.raises(OutputRefused, match=r"plotly\.min\.js"):
        report.write(tmp_path / "c.html")
    assert copy.read_text("utf-8") == "other" and not (tmp_path / "c.html").exists()


@pytest.mark.parametrize("name", ["full", "light"])
def test_structure(name: str, request: pytest.FixtureRequest) -> None:
    """Elements close, ids are unique, contents lead somewhere, headings skip no level, the answer comes first."""
    page: Page = request.getfixturevalue(name)
    assert not page.open_
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for tag, a in page.tags if tag in ("a", "use") and a["href"].startswith("#")]
    assert targets and set(targets) <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    assert page.all("section")[0]["id"] == "answer"


@pytest.mark.parametrize("name", ["full", "light"])
def test_every_picture_has_words(name: str, request: pytest.FixtureRequest) -> None:
    """Pictures say what they show or are decoration; controls have labels; tables have captions and row names."""
    page: Page = request.getfixturevalue(name)
    for svg in page.all("svg"):
        assert svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and svg.get("aria-label"))
    labelled = {a["for"] for a in page.all("label")}
    for control in page.all("input") + page.all("select"):
        assert control.get("type") == "hidden" or control["id"] in labelled
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(a.get("scope") in ("row", "col") for a in page.all("th"))


# ---------------------------------------------------------------------- what it says
def test_embedded_estimates_are_those_of_estimate(full: Page) -> None:
    """The numbers in the file are `estimate --json` of the same question."""
    (said,) = re.findall(r'<pre id="data"[^>]*>(.*?)</pre>', full.text, re.S)
    data = json.loads(unescape(said))
    assert data["schema"] == "archsim.report/1"
    wanted = api.estimate("llama2-7b", "h100", batch=4).to_dict()
    assert data["estimates"][0] == json.loads(json.dumps(wanted))
    names = [(e["model"]["name"], e["hardware"]["name"]) for e in data["estimates"]]
    assert names == [(m, h) for m in ("llama2-7b", "mixtral-8x7b") for h in ("h100-sxm", "rtx-4090")]


def test_curves_are_what_estimate_says(full: Page) -> None:
    """A point of the throughput chart that is not the report's own equals an estimate of it."""
    drawn = charts_of(full)["charts"]["throughput"]["data"]
    trace = next(t for t in drawn if t["name"] == "llama2-7b · h100-sxm" and t["mode"] == "lines+markers+text")
    at = trace["text"].index("16")
    wanted = api.estimate("llama2-7b", "h100", batch=16, devices=1).metrics
    assert trace["x"][at] == pytest.approx(wanted["tokens_per_s_per_user"], rel=1e-5)
    assert trace["y"][at] == pytest.approx(wanted["tokens_per_s_per_device"], rel=1e-5)


def test_the_frontier_is_the_largest_that_fits() -> None:
    """One batch at the frontier fits, one clearly above does not."""
    asked = study.ReportRequest(models=("x",), hw=("y",))
    (run,) = workloads.workloads(study.study([_loaded("llama2-7b")], [_device("h100")], asked))
    most = run.most[4096]
    over = most + max(1, most // 250)
    fits = [api.estimate("llama2-7b", "h100", batch=n, input_len=4096, devices=1).memory.fits for n in (most, over)]
    assert fits == [True, False]


def test_what_does_not_fit_is_said() -> None:
    """A candidate that is too large is answered, named and kept out of the best figures."""
    found = api.report("llama2-70b", "rtx-4090", weights="bf16,int4", devices=1, light=True)
    assert [c.fits for c in found.study.candidates] == [False, False]
    told = re.findall(r'<p class="verdict">(.*?)</p>', found.html)[0]
    assert told.startswith("None of the 2 candidates fits; ") and "is closest: it needs" in told


def test_differences_are_marked() -> None:
    """Of two models that differ in their heads, these lines are marked and the equal width is not."""
    text = api.report(["llama2-7b", "llama3-8b"], "h100", light=True).html
    marked = re.findall(r'class="diff">≠ ([^<]*)<', text)
    assert "8 KV heads" in marked and "intermediate size 14,336" in marked
    assert not any("d_model" in line or "32 query heads" in line for line in marked)
    assert "≠" not in re.sub(r"marked with ≠", "", api.report("llama2-7b", "h100", light=True).html)


def test_the_front_is_what_nothing_beats() -> None:
    """A point stays unless another is at least as good at both."""
    points = [(10.0, 1.0), (8.0, 5.0), (7.0, 4.0), (8.0, 3.0), (1.0, 9.0)]
    assert front(points) == [(10.0, 1.0), (8.0, 5.0), (1.0, 9.0)]


@pytest.mark.parametrize(
    ("models", "hw"), [("bert-base", "t4"), ("t5-base", "h100"), ("mamba-2.8b", "h100"), ("gemma3-27b", "h100")]
)
def test_other_architectures(models: str, hw: str) -> None:
    """Encoders, both halves, models without a cache and with windows: each gives a whole page."""
    page = Page(api.report(models, hw, light=True, input_len=256).html)
    assert not page.open_ and not re.search(r"\b(NaN|nan|inf|None)\b", page.text)


def test_accuracy_or_that_there_is_none(light: Page) -> None:
    """Errors on public runs where there are any of the device; else it is said that there are none."""
    assert "Errors on public runs" in light.text
    assert "Not validated here" in api.report("transformer-base", "cerebras-wse-3", light=True, input_len=128).html


def test_stamp(light: Page) -> None:
    """A date is shown where one is given, and none otherwise."""
    assert "2031-01-02" in api.report("llama2-7b", "h100", light=True, stamp="2031-01-02").html
    assert not re.search(r"20\d\d-\d\d-\d\d[T ]\d\d:", light.text)


def test_the_band_is_the_interval() -> None:
    """The factors of a rate lead to the ends of the 80 % interval of the time."""
    e = api.estimate("llama2-7b", "h100", batch=4)
    rate = rate_of(e)
    assert rate is not None and e.decode is not None
    assert rate.user * rate.slow == pytest.approx(1 / e.decode.high_s)
    assert rate.user * rate.fast == pytest.approx(1 / e.decode.low_s)


def test_marks_of_several_models_are_against_the_one_before() -> None:
    """Of three drawings the first has no mark; the others have what the drawing before lacks, and only that."""
    text = api.report(["llama2-7b", "llama3-8b", "llama3.1-8b"], "h100", light=True).html
    first, second, third = re.findall(r'<svg[^>]*class="plan">.*?</svg>', text, re.S)
    assert "≠" not in first
    assert "≠ 8 KV heads" in second
    assert "≠ 8 KV heads" not in third and "≠ position" in third


def test_lineage() -> None:
    """A strip has the family with years, oldest first; sizes that came out together stand as one."""
    from archsim import load_model

    stops = descent.line(load_model("llama2-7b"), {"llama2-7b"})
    assert [stop.year for stop in stops] == sorted(stop.year for stop in stops)
    names = [stop.name for stop in stops]
    assert names[-2:] == ["llama-7b", "llama2-7b"] and sum(name.startswith("gpt3") for name in names) == 1
    assert stops[-1].asked and not stops[0].asked


@pytest.mark.parametrize("name", ["full", "light"])
def test_every_figure_has_a_caption(name: str, request: pytest.FixtureRequest) -> None:
    """Captions say something; charts that are compared have their numbers behind them."""
    page: Page = request.getfixturevalue(name)
    captions = re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", page.text, re.S)
    assert len(captions) == len(page.all("figure")) and all(len(text) > 10 for text in captions)
    twins = [a for a in page.all("details") if a.get("class", "").startswith("twin")]
    assert len(twins) >= page.text.count('class="chart"')


def test_published_runs_have_sources(light: Page) -> None:
    """Every figure of the accuracy plot stands in a table with its error and the page that it was taken from."""
    table = re.search(r"<caption><span>Published runs</span></caption>.*?</table>", light.text, re.S)
    assert table is not None
    rows = re.findall(r"<tr><th scope=.row.*?</tr>", table[0], re.S)
    assert len(rows) >= 10 and all("%</td>" in row and '<a href="https://' in row for row in rows)


# ---------------------------------------------------------------------- what it rests on
QUESTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("mixtral-8x7b", "h100", {"batch": 8}),
    ("deepseek-v3", "h200", {"batch": 16, "input_len": 4096}),
    ("llama2-7b", "t4", {"weights": "fp8", "devices": 4}),
    ("llama2-70b", "rtx-4090", {"engine": "llamacpp", "weights": "mxfp4_moe", "devices": 8}),
    ("llama2-7b", "tpu-v5p", {"engine": "vllm"}),
    ("bert-base", "h100", {"input_len": 256}),
    ("deberta-base", "h100", {"batch": 8}),
    ("t5-base", "cerebras-wse-3", {"input_len": 256}),
    ("mamba-2.8b", "mi300x", {}),
)


@pytest.mark.parametrize(("model", "hw", "options"), QUESTIONS, ids=[q[0] + "-" + q[1] for q in QUESTIONS])
def test_every_assumption_has_an_effect(model: str, hw: str, options: dict[str, Any]) -> None:
    """No assumption that an estimate makes is without a figure or a reason."""
    found = api.report(model, hw, light=True, **options)
    (case,) = found.study.candidates
    assert case.answer.assumptions
    for note in case.answer.assumptions:
        assert effects.effect(note, case, found.study.asked) != effects.UNKNOWN, note
    assert found.html.count("If wrong: ") == len(set(case.answer.assumptions))


def test_effects_are_computed() -> None:
    """What would be in a narrower cache, at the ends of the answer and on a slower memory is what estimates say."""
    found = api.report("llama2-7b", "h100", light=True, batch=16, input_len=4096)
    (case,), asked = found.study.candidates, found.study.asked
    narrow = api.estimate("llama2-7b", "h100", batch=16, input_len=4096, kv_cache_dtype="fp8", devices=1)
    first = api.estimate("llama2-7b", "h100", batch=16, input_len=4096, output_len=1, devices=1)
    told = {note.code: effects.effect(note, case, asked) for note in case.answer.assumptions}
    cache, mean, light = told["A10"], told["A05"], told["A01"]
    assert first.decode is not None and case.answer.decode is not None and narrow.decode is not None
    assert format_bytes(narrow.memory.kv_cache) in cache
    assert effects.change(narrow.decode.expected_s, case.answer.decode.expected_s) in cache
    assert format_seconds(first.decode.expected_s) in mean
    assert "decode +11 %" in light  # all of it waits for memory: 1 / 0.9


def test_provenance(light: Page) -> None:
    """Every input with its file, the start of its hash and an address."""
    table = re.search(r"<caption><span>Inputs</span></caption>.*?</table>", light.text, re.S)
    assert table is not None
    rows = re.findall(r"<tr><th scope=.row.*?</tr>", table[0], re.S)
    assert len(rows) == 4
    path = ROOT / "specs" / "models" / "llama2-7b.yaml"
    assert hashlib.sha256(path.read_bytes()).hexdigest()[:8] in rows[0]
    assert all("https://" in row for row in rows)


# ---------------------------------------------------------------------- the same again
def test_same_bytes_twice(archsim_process: Any, tmp_path: Path) -> None:
    """Two processes with different hash seeds write the same file."""
    for seed in ("1", "2"):
        args = ["report", "llama3.2-1b", "--hw", "h100", "--out", str(tmp_path / f"{seed}.html"), "-q"]
        done = archsim_process(args, env={"PYTHONHASHSEED": seed})
        assert done.code == 0, done.err
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


EXAMPLE_NAMES = tuple(runpy.run_path(str(EXAMPLES / "make.py"))["EXAMPLES"])


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_example_is_up_to_date(name: str) -> None:
    """Each committed example is what its command gives; `python reports/examples/make.py` writes all anew."""
    made = runpy.run_path(str(EXAMPLES / "make.py"))["page"](name)
    same = (EXAMPLES / f"{name}.html").read_text("utf-8") == made
    assert same, "`python reports/examples/make.py` writes the examples anew"  # a diff of such pages takes minutes
    left = re.findall(r'class="left-out">.*?bytes: (.*?)\.</p>', made)
    assert left in ([], ["the table of all kernels"])  # an example shows everything else


def test_every_example_is_there() -> None:
    """Each example of the list is committed, small, without plotly.js and without a machine's paths."""
    assert {p.stem for p in EXAMPLES.glob("*.html")} == set(EXAMPLE_NAMES)
    for path in EXAMPLES.glob("*.html"):
        text = path.read_text("utf-8")
        assert len(text.encode()) <= 700_000 and 'integrity="sha256-' in text
        assert not re.search(r"/(home|tmp|root|work)/", text)


def test_the_way_since_2017() -> None:
    """The example begins at the encoder-decoder of 2017, ends in 2025, and has a waterfall for every stretch."""
    text = (EXAMPLES / "evolution-2017-to-2025.html").read_text("utf-8")
    strip = re.search(r'<ol class="strip" aria-label="The models compared.*?</ol>', text, re.S)
    assert strip is not None
    years = re.findall(r"<span>(\d{4})</span> <strong>", strip[0])
    assert (years[0], years[-1]) == ("2017", "2025") and years == sorted(years)
    stretches = re.findall(r'<details class="stretch long">.*?</details>', text, re.S)
    assert len(stretches) == len(years) - 1
    assert all('class="chart"' in stretch and "<table" in stretch for stretch in stretches)
    assert "encoder and decoder: encoder-decoder → decoder" in stretches[0]


# ---------------------------------------------------------------------- hostile specs
def hostile(words: str, url: str) -> str:
    """A spec whose every free text is hostile."""
    said = json.dumps(words)
    return (
        f"name: {said}\ntitle: {said}\norg: {said}\naliases: [{said}]\n"
        f"lineage: {{parent: {said}, changes: [{said}]}}\n"
        "d_model: 64\nvocab_size: 128\nmax_context: 4096\nhead: {tied: true}\n"
        "layers:\n"
        f"  - name: a{re.sub('[^a-z]', '', words)[:8]}\n    repeat: 2\n    norm: {{kind: rmsnorm}}\n"
        "    attention: {kind: mha, n_heads: 2, d_head: 32}\n    ffn: {kind: mlp, d_ff: 64}\n"
        f"published: {{params: {said}, note: {said}}}\nnotes: [{said}]\n"
        f"sources:\n  - {{id: x, title: {said}, url: {json.dumps(url)}, covers: [{said}]}}\n"
    )


ATTACKS = {
    "markup": ATTACK,
    "end of script": "</script><script>alert(1)</script><!--",
    "quotes": '" onmouseover="alert(1)" \' onload=\'alert(1)',
    "long": LONG,
    "escapes": "\x1b[31m\u202eevil\x00\n",
    "json": '\\"},{"x":1}]}</pre></script>',
}
URLS = (
    "javascript:alert(1)",
    " JaVaScRiPt:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    'https://x.y/"onclick="z',
)


@pytest.mark.parametrize("light", [True, False], ids=["light", "full"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_spec_is_inert(attack: str, light: bool, tmp_path: Path) -> None:
    """No element, attribute or address comes from a spec, no text of it is unbounded, and the page stays whole."""
    path = tmp_path / "m.yaml"
    path.write_text(hostile(ATTACKS[attack], URLS[len(attack) % len(URLS)]), "utf-8")
    page = Page(api.report([str(path), "llama3.2-1b"], "h100", light=light, stamp=ATTACKS[attack][:500]).html)
    assert not page.open_
    running = [text for attrs, text in page.scripts if attrs.get("type") != "application/json"]
    assert len(running) == (0 if light else 2) and not any("alert(1)" in text for text in running)
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        assert tag != "img"
        if tag == "a":
            assert re.match(r"#|https://", attrs["href"]), attrs
    seen = re.sub(r"<(pre|script)\b.*?</\1>", "", page.text, flags=re.S)
    assert "N" * 700 not in seen and "\x1b" not in page.text and "\u202e" not in seen
    assert len(page.text.encode()) <= (300_000 if light else 6_900_000)


@pytest.mark.parametrize("attack", ["markup", "end of script", "long"])
def test_hostile_device_is_inert(attack: str, tmp_path: Path) -> None:
    """The same of a device's name, notes and sources."""
    text = (ROOT / "hardware" / "devices" / "h100-sxm.yaml").read_text("utf-8")
    said = json.dumps(ATTACKS[attack])
    text = re.sub(r"^name: .*$", lambda _: f"name: {said}", text, flags=re.M)
    text = re.sub(r"url: [^,}\n]+", 'url: "javascript:alert(1)"', text)
    path = tmp_path / "d.yaml"
    path.write_text(text, "utf-8")
    page = Page(api.report("llama3.2-1b", str(path), light=True).html)
    assert not page.open_ and not page.scripts and not page.all("img")
    assert all(re.match(r"#|https://", a["href"]) for a in page.all("a"))
    assert "N" * 700 not in re.sub(r"<pre\b.*?</pre>", "", page.text, flags=re.S)


@pytest.mark.parametrize("url", URLS)
def test_only_addresses_of_the_web_are_links(url: str) -> None:
    """What is no plain web address is shown as text."""
    assert "<a" not in link(url, "title") and "<a" not in link(url)


def test_safe() -> None:
    """Escaped, on one line, bounded."""
    assert safe("<a href='x'>\"&") == "&lt;a href=&#x27;x&#x27;&gt;&quot;&amp;"
    assert safe("a\nb\x1b") == "a\\nb\\x1b"
    assert len(safe(LONG)) == 600


# ---------------------------------------------------------------------- asking
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("report", "llama2-7b"), "--hw"),
        (("report", "llama2-7b", "--hw", "h100"), "--out"),
        (("report", "lama2-7b", "--hw", "h100", "--out", "x.html"), "did you mean `llama2-7b`?"),
        (("report", "llama2-7b", "--hw", "h100,h100x", "--out", "x.html"), "h100x"),
        (("report", "llama2-7b", "--hw", "h100", "--weights", "fp9", "--out", "x.html"), "fp8"),
        (("report", *MANY, "--hw", "h100,a100,h200,l4,t4", "--out", "x.html"), "1 to 24"),
        (("report", "llama2-7b", "--hw", "h100", "--out", "/proc/nothing/x.html"), "there is no folder"),
    ],
)
def test_usage_errors(args: tuple[str, ...], words: str, archsim: Any, tmp_path: Path) -> None:
    """What is wrong is said on stderr with exit code 2, and no file is left."""
    result = archsim(*args, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert words in result.err and not list(tmp_path.iterdir())


def test_the_report_ranks_as_compare_does() -> None:
    """The confidence of a sentence is that of `archsim compare`: errors that both sides share cancel."""
    from archsim.render.pages.compare import verdict

    compared = api.compare(["llama2-7b", "llama3-8b"], "h100")
    found = compared.ranking(compared.candidates[1])["decode"]
    assert found is not None
    text = answer.verdict(api.report(["llama2-7b", "llama3-8b"], "h100", light=True).study)
    assert verdict(found).rpartition(", ")[2] in text


def test_command(archsim: Any, tmp_path: Path) -> None:
    """The file is written whole; stdout has the verdict, or with `--json` the estimates."""
    out = tmp_path / "r.html"
    result = archsim("report", "llama2-7b", "--hw", "h100,a100", "--out", str(out), "--light", cwd=tmp_path)
    assert result.code == 0 and "x slower, > 99 % sure" in result.out
    assert f"{len(out.read_bytes()):,} bytes" in result.out
    assert "archsim report llama2-7b --hw h100,a100 --light --out FILE.html" in out.read_text("utf-8")
    again = ("report", "llama2-7b", "--hw", "h100", "--out", str(out), "--light", "--json", "--force")
    result = archsim(*again, cwd=tmp_path)
    assert json.loads(result.out)["schema"] == "archsim.report/1"


def test_the_answer_is_no(archsim: Any, tmp_path: Path) -> None:
    """Where nothing fits the page is written, stdout stays one answer, and the exit code is 1."""
    out = tmp_path / "r.html"
    args = ("report", "llama2-70b", "--hw", "t4", "--devices", "1", "--out", str(out), "--light", "--json")
    result = archsim(*args, cwd=tmp_path)
    assert result.code == 1 and "none of the candidates fits" in result.err
    assert json.loads(result.out)["estimates"][0]["memory"]["fits"] is False
    assert "does not fit" in out.read_text("utf-8")


def test_a_folder_is_no_file(archsim: Any, tmp_path: Path) -> None:
    """`--out` that is a folder is refused with a file to name instead."""
    result = archsim("report", "llama3.2-1b", "--hw", "h100", "--out", str(tmp_path), "--light")
    assert result.code == 2 and "is a folder" in result.err and not list(tmp_path.iterdir())


def test_the_same_under_two_names_is_taken_once() -> None:
    """Nothing is compared with itself."""
    found = api.report(["llama2-7b", "meta-llama/Llama-2-7b-hf"], "h100,h100-sxm", light=True).study
    assert len(found.candidates) == 1


def test_an_encoder_is_compared_by_the_prompt() -> None:
    """A model that writes and one that does not share one phase, which is what the verdict is about."""
    found = api.report(["bert-base", "llama2-7b"], "h100", light=True, input_len=256).study
    told = answer.verdict(found)
    best = min(found.candidates, key=lambda c: float(c.answer.prefill.expected_s))
    assert f"{format_seconds(float(best.answer.prefill.expected_s))} for the prompt, ahead of" in told


# ---------------------------------------------------------------------- the limit of the size
def test_a_large_report_stays_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 candidates with many kinds of layers make a page of tables within its limit; a lower one is kept and said."""
    models = ["kimi-k2", "deepseek-v3", "glm-5", "qwen3.5-397b-a17b", "llama4-maverick", "minimax-text-01"]
    page = Page(api.report(models, "h200,mi300x,b200,tpu-v5p", light=True).html)
    assert len(page.text.encode()) <= 300_000 and not page.open_
    monkeypatch.setattr(document, "MOST", 120_000)
    page = Page(api.report("llama3.2-1b", "h100", plotlyjs="cdn").html)
    (left,) = re.findall(r'<p class="left-out">(.*?)</p>', page.text)
    assert "the tables of all kernels" in left and len(page.text.encode()) <= 120_000
    assert {"answer", "compared", "assumptions"} <= {a["id"] for a in page.all("section")}


@pytest.fixture(scope="module")
def small() -> tuple[study.Study, fitting.Parts]:
    """A page with charts of one model, in parts."""
    asked = study.ReportRequest(models=("x",), hw=("y",))
    found = study.study([_loaded("llama3.2-1b")], [_device("h100")], asked)
    return found, document._parts(found, False, "")


def test_less_and_less(small: tuple[study.Study, fitting.Parts]) -> None:
    """Each thing left out makes the page smaller and is named; every page stays whole, every chart has its place."""
    found, whole = small
    sizes = []
    for parts in fitting.fitting(whole):
        page = Page(document._page(found, parts, "", 1, "cdn"))
        assert not page.open_ and all(prose(words) in page.text for words in parts.left_out)
        assert set(charts_of(page)["charts"]) == set(re.findall(r'id="chart-([\w-]+)"', page.text))
        sizes.append(len(page.text))
    assert len(sizes) >= 6 and all(b < a for a, b in pairwise(sizes))


@pytest.mark.parametrize("light", [True, False], ids=["light", "full"])
def test_no_file_above_the_limit(light: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing that may be left out is enough, the report is refused rather than written."""
    monkeypatch.setattr(document, "MOST", 10_000)
    monkeypatch.setattr(document, "MOST_LIGHT", 10_000)
    with pytest.raises(UsageError, match="larger than 10,000 bytes"):
        api.report("llama3.2-1b", "h100", light=light).write(tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_large_comparisons_stay_bounded() -> None:
    """With many candidates the curves have fewer points; the report's own is always among them."""
    asked = study.ReportRequest(models=("x",), hw=("y",), batch=3)
    few = study.study([_loaded("llama3.2-1b")], [_device("h100")], asked)
    many = study.study([_loaded("llama3.2-1b")] * 9, [_device("h100")], asked)
    one, other = workloads.workloads(few)[0], workloads.workloads(many)[0]
    assert len(other.by_batch) < len(one.by_batch) and len(other.by_context) < len(one.by_context)
    assert all(3 in run.by_batch and 2048 in run.by_context for run in (one, other))


def _loaded(name: str) -> tuple[Any, None]:
    from archsim import load_model

    return load_model(name), None


def _device(name: str) -> Any:
    from archsim import load_hardware

    return load_hardware(name)


# ---------------------------------------------------------------------- prices
def test_no_price_no_dollars(light: Page) -> None:
    """Nothing is priced unless a price is asked for."""
    assert "USD" not in light.text and "per million" not in light.text


def test_a_price_gives_a_column_of_dollars() -> None:
    """The bill by output tokens of `estimate --price`, with the price's provider, terms, date and source; none of what
    does not fit.
    """
    asked = {"batch": 8, "utilization": 0.5, "devices": 1}
    found = api.report(["llama2-7b", "llama2-70b"], "h100,l40s", light=True, price="runpod:on-demand", **asked)
    text = unescape(found.html)
    assert "USD per million output tokens" in text and "50 % of the paid hours serve this load" in text
    for device in ("h100", "l40s"):
        cost = api.estimate("llama2-7b", device, price="runpod:on-demand", **asked).cost.cost
        assert f"<td>{usd(cost.usd_per_m_output_all_in)} <small>{usd(cost.low)} to {usd(cost.high)}" in text
        row = text.partition("<caption><span>Prices")[2].partition(f'<th scope="row">{cost.price.device}')[2][:600]
        assert f"{cost.price.usd_per_device_hour:,.4g}<" in row
        assert all(part in row for part in ("runpod", "on-demand", cost.price.as_of, cost.price.source))
    assert text.count("<mark>no</mark>") == text.partition("<caption><span>Prices")[0].count("<td>–</td>") == 2
    assert found.to_dict()["estimates"][0]["cost"]["utilization"] == 0.5


def test_prices_are_asked_for_as_of_estimate() -> None:
    """The range of the whole table; a share without a price is refused; a model that writes nothing pays by prompts."""
    text = unescape(api.report("llama3.2-1b", "h100", light=True, price="table").html)
    assert re.search(r"h100-sxm: on-demand \$[\d.]+ \(\w+\) to \$[\d.]+ \(\w+\), \d+ providers", text)
    with pytest.raises(UsageError, match="goes with a price"):
        api.report("llama3.2-1b", "h100", light=True, utilization=0.5)
    assert "USD per million prompt tokens" in api.report("bert-base", "t4", light=True, price=1, input_len=512).html
