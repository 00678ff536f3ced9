"""Results in a notebook, a prompt and `print`: the pages of the commands, never fields of a dataclass."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import archsim
from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, SpecError, UnknownName, UsageError
from archsim.measure.model_check import Line, ModelCheck
from archsim.render import views
from archsim.render.html.fragment import STYLE

ROOT = Path(__file__).resolve().parents[2]

SMALL, DEVICE = "gpt2-small", "t4"

RUNS: dict[str, Any] = {"devices": 1, "micro_batch": 1, "global_batch": 1, "seq_len": 256, "recompute": "none"}
"""What the small training runs have in common."""

MADE: dict[str, Any] = {
    "Estimate": lambda: archsim.estimate(SMALL, DEVICE),
    "CountResult": lambda: archsim.count(SMALL),
    "Fit": lambda: archsim.fit(SMALL, DEVICE, engine="vllm"),
    "Fits": lambda: archsim.fits(DEVICE, context=1024, weights="bf16"),
    "Trace": lambda: archsim.trace(SMALL, DEVICE),
    "Comparison": lambda: archsim.compare([SMALL, "gpt2-medium"], DEVICE),
    "LoadComparison": lambda: _loads(),
    "Difference": lambda: archsim.diff(SMALL, "gpt2-medium"),
    "Evolution": lambda: archsim.evolve(SMALL, "tinyllama-1.1b", DEVICE, orders=1),
    "Sweep": lambda: archsim.sweep(SMALL, DEVICE, batch="1,8"),
    "Report": lambda: archsim.report(SMALL, DEVICE, light=True),
    "Validation": lambda: archsim.validate(limit=5),
    "Several": lambda: _several(),
    "ModelCheck": lambda: _check(),
    "CpuCheck": lambda: _cpu_check(),
    "Ledger": archsim.claims,
    "Survey": archsim.survey,
    "Design": lambda: archsim.design(
        "rtx-4090", train_flops=1e22, tpot="15ms", vary=["d_model=2048,4096", "n_layers=24,32"], fix=["d_head=128"]
    ),
    "Advise": lambda: archsim.advise("llama3.2-1b", "rtx-4090", devices=1),
    "Scaling": lambda: archsim.scaling(compute=1e21),
    "Simulation": lambda: archsim.simulate(SMALL, DEVICE, concurrency=2, requests=20, replications=1),
    "Training": lambda: archsim.train(SMALL, "h100", devices=1, micro_batch=1, global_batch=1, seq_len=256),
    "TrainingComparison": lambda: archsim.compare_training(SMALL, "h100", zero="0,1", **RUNS),
    "TrainingSweep": lambda: archsim.sweep_training(SMALL, "h100", zero="0,1", **RUNS),
    "TrainingReport": lambda: archsim.report_training(SMALL, "h100", zero="0,1", **RUNS),
    "Model": lambda: archsim.load_model(SMALL),
    "Hardware": lambda: archsim.load_hardware(DEVICE),
}
"""Every kind of answer, as Python gets it."""

NO_TABLE = {"Trace", "Report", "TrainingReport", "Model", "Hardware"}


def _loads() -> Any:
    from archsim.comparison.loaded import LoadComparison
    from archsim.sweeps.scenarios import COLUMNS

    base = dict.fromkeys(COLUMNS, 1.0) | {"hw": "t4", "devices": 1, "largest_rate_per_s": 4.0}
    return LoadComparison([{**base, "model": SMALL}, {**base, "model": "gpt2-medium", "largest_rate_per_s": 2.0}])


def _several() -> Any:
    from archsim.accuracy.validation import Several

    return Several(answers=(archsim.validate(limit=5),))  # type: ignore[arg-type]


def _cpu_check() -> Any:
    from archsim.measure.cpu_check import CpuCheck

    case = {
        "id": "a", "model": SMALL, "form": "eager", "dtype": "fp32", "phase": "prefill",
        "batch": 1, "new": 8,
        "past": 0, "predicted_s": 1.0, "low_s": 0.8, "high_s": 1.2, "roofline_s": 0.2, "measured_s": 1.1,
        "spread": 0.01,
    }  # fmt: skip
    return CpuCheck(
        model=SMALL, device="cpu-x", dtype="fp32", plan=Path("plan.json"), plan_sha256="0" * 64, rows=(case,), left=0,
        seconds=1.0,
    )  # fmt: skip


def _check() -> ModelCheck:
    return ModelCheck(
        asked=SMALL, model=SMALL, reduced="", device="cpu", hardware=None, engine="eager", dtype="float32",
        lines=(Line(what="parameters", unit="", predicted=10, measured=10),), parts=(), spread_pct=0.0,
        notes=(),
    )  # fmt: skip


def words_of(html: str) -> list[str]:
    """Words that a reader of a page sees."""
    seen: list[str] = []

    class Reader(HTMLParser):
        hidden = False

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.hidden = tag in ("style", "script")

        def handle_endtag(self, tag: str) -> None:
            self.hidden = False

        def handle_data(self, data: str) -> None:
            seen.extend([] if self.hidden else re.findall(r"\w+", data))

    Reader().feed(html)
    return seen


def test_every_answer_is_listed() -> None:
    """Whatever can be shown has a view, and whatever has a view is tested here."""
    assert set(MADE) == set(views.VIEWS)
    kinds = re.compile(r"^class (\w+)\((?:Displayed|Tabular)\b", re.M)
    texts = [path.read_text("utf-8") for path in Path(archsim.__file__).parent.rglob("*.py")]
    assert {name for text in texts for name in kinds.findall(text)} - {"Tabular"} == set(views.VIEWS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MADE))
def test_an_answer_shows_its_page(kind: str) -> None:
    """In text, Markdown and HTML alike; `repr` is one short line, and no field of a dataclass is seen."""
    answer = MADE[kind]()
    assert type(answer).__name__ == kind
    text, markdown, html = str(answer), answer._repr_markdown_(), answer._repr_html_()
    assert re.fullmatch(rf"<{kind}: .+; print\(\) shows the page>", repr(answer)) and len(repr(answer)) < 200
    assert f"{kind}(" not in text and text == text.rstrip("\n")
    assert markdown.startswith("## ")
    if kind.endswith("Report"):
        assert html.startswith("<iframe") and "allow-same-origin" not in html
        return
    first = text.split("\n", 1)[0]
    assert set(re.findall(r"\w+", first)) <= set(words_of(html))
    assert "<html" not in html and "<script" not in html and html.startswith('<div class="archsim">')


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MADE.keys() - NO_TABLE))
def test_a_table_has_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`to_pandas` is given what `to_rows` lists, which is plain data; without pandas the error says what to do."""
    answer = MADE[kind]()
    assert isinstance(answer, Tabular)
    rows = answer.to_rows()
    assert rows and all(isinstance(row, dict) for row in rows)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))  # type: ignore[arg-type]
    assert list(answer.to_pandas()) == rows
    monkeypatch.setitem(sys.modules, "pandas", None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pip install pandas"):
        answer.to_pandas()


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MADE))
def test_an_answer_is_plain_data(kind: str) -> None:
    """`to_dict` is JSON as it stands, and names its schema."""
    document = MADE[kind]().to_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) and str(document.get("schema", "archsim.")).startswith(
        "archsim."
    )


def test_the_page_of_python_has_every_function_and_option() -> None:
    """docs/python.md lists all that the package offers; a misspelt option is answered with the nearest one."""
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    table = text.partition("| function | answers |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`(\w+)\(", table))
    assert listed == set(archsim.__all__) - {"ArchsimError", "__version__"}
    with pytest.raises(UsageError) as wrong:
        archsim.estimate(SMALL, DEVICE, batchh=2)  # type: ignore[call-arg]
    assert "did you mean `batch`?" in str(wrong.value)


@pytest.mark.slow
def test_the_page_of_python_is_that_of_the_command(archsim_process: Any) -> None:
    """But for the files, the list of assumptions and the commands to go on with, which only a command knows."""
    printed = archsim_process(["estimate", SMALL, "--hw", DEVICE]).out.split("\nBasis")[0].rstrip()
    assert str(archsim.estimate(SMALL, DEVICE)).split("\nBasis")[0].rstrip() == printed
    assert "Try" not in str(archsim.estimate(SMALL, DEVICE))


def test_a_name_stays_text_in_html() -> None:
    """A model whose name is markup shows it, in every form."""
    model = archsim.load_model(SMALL).model_copy(update={"name": "<script>x</script>", "title": None})
    for answer in (model, archsim.count(model), archsim.estimate(model, DEVICE)):
        assert "<script" not in answer._repr_html_()
        assert not re.search(r"(?<!\\)<script", answer._repr_markdown_())


def test_the_style_reaches_nothing_outside() -> None:
    """Every rule begins with the class of the piece."""
    selectors = [part.strip() for rule in STYLE.split("}") if rule.strip() for part in rule.split("{")[0].split(",")]
    assert selectors and all(selector.startswith(".archsim") for selector in selectors)


def test_a_large_sweep_is_not_priced_to_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at a sweep of millions of points says how many there are, at once."""
    sweep = archsim.sweep(SMALL, DEVICE, batch="1-1000+1", input_len="1-1000+1")
    monkeypatch.setattr(type(sweep), "priced", None)
    assert "1,000,000 points" in str(sweep) and "chunks()" in str(sweep) and "1,000,000 points" in repr(sweep)


# ------------------------------------------------------------------ errors
def test_an_error_in_python_says_what_to_do() -> None:
    """The hints of an unknown name, and the place of a wrong field, are in `str(error)`."""
    with pytest.raises(UnknownName) as unknown:
        archsim.estimate("lama2-70b", DEVICE)
    assert "did you mean `llama2-70b`?" in str(unknown.value) and str(unknown.value).startswith(unknown.value.message)
    with pytest.raises(SpecError) as wrong:
        archsim.load_model({"name": "mine", "d_model": -1, "vocab_size": 10, "layers": []})
    assert "d_model" in str(wrong.value) and "\n  --> dict:" in str(wrong.value)


def test_an_error_without_more_is_its_message() -> None:
    """Nothing is added where there is nothing to add."""
    assert str(ArchsimError("no")) == "no"
    assert str(UsageError("no", hints=("do this",))) == "no\nhint: do this"


# ------------------------------------------------------------------ dicts
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}  # fmt: skip


def test_a_dict_is_a_model(tmp_path: Path) -> None:
    """Of a config.json, equal to its file; of a spec, with changes; every function takes one."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    assert archsim.count(archsim.load_model(CONFIG)).total == archsim.count(tmp_path).total
    assert archsim.count(CONFIG).total == archsim.count(tmp_path).total
    assert archsim.load_model(tmp_path / "config.json").n_layers == 2
    spec = archsim.load_model("gpt2-small").model_dump(mode="json", exclude_unset=True, by_alias=True)
    assert archsim.count(archsim.load_model(spec)).total == archsim.count("gpt2-small").total
    assert archsim.estimate(CONFIG, DEVICE, set="layers.repeat=4").model.n_layers == 4


@pytest.mark.parametrize("document", [{}, {"model_type": "unheard-of"}, {"extends": "gpt2-small"}, {"layers": 3}])
def test_a_dict_that_is_no_model_is_refused(document: dict[str, object]) -> None:
    """With an error of archsim, whatever is wrong with it."""
    with pytest.raises(ArchsimError):
        archsim.load_model(document)


def test_what_is_no_model_is_refused_by_kind() -> None:
    """A list or a number is neither a name nor a document."""
    with pytest.raises(UsageError, match="a dict or a loaded Model"):
        archsim.count(3)  # type: ignore[arg-type]
