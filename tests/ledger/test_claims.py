"""`archsim claims`: the ledger is whole, nothing in it is typed by hand, and the rule does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim.base.errors import SpecError, UnknownName, UsageError
from archsim.base.expression import evaluate
from archsim.ledger.claims import Claim, Judged, Ledger, claims, judge, load_claims
from archsim.ledger.published_table import Origin
from archsim.ledger.quantities import facts
from archsim.ledger.verdict import VERDICTS, compare_values, figure, over_models, together, value_text
from archsim.render.pages.claims import document, markdown
from archsim.spec.load import load_model

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "specs/claims").glob("*.yaml"))
ARTICLE = Origin(title="an article")


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """The whole ledger, computed once."""
    return claims()


def judged(**fields: Any) -> Judged:
    """A claim made up for a test."""
    return judge(ARTICLE, Claim.model_validate({"id": "C999", "says": "something", **fields}))


@pytest.mark.slow
def test_every_claim_is_there_once(ledger: Ledger) -> None:
    """145 claims, C001 to C145, in order, each with a verdict and a reason."""
    assert [one.claim.id for one in ledger.claims] == [f"C{i:03}" for i in range(1, 146)]
    assert all(one.verdict in VERDICTS and one.reason for one in ledger.claims)
    assert sum(ledger.counts().values()) == 145


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_typed_by_hand(path: Path) -> None:
    """The files hold no verdict and no result: only what is stated, and expressions."""

    def keys(value: Any) -> Iterator[str]:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield str(key)
            if isinstance(inner, (dict, list)):
                yield from keys(inner)

    found = set(keys(yaml.safe_load(path.read_text("utf-8"))))
    assert not found & {"verdict", "result", "expected", "reason"}
    assert not set(VERDICTS) & found


@pytest.mark.slow
def test_verdicts_are_computed(ledger: Ledger) -> None:
    """Each verdict but `uncheckable` follows from checks, or from the catalog's word on a model without a spec."""
    for one in ledger.claims:
        if not one.checks:
            assert one.claim.missing or one.claim.models, one.claim.id
        elif one.claim.missing is None:
            plain = together(check.verdict for check in one.checks)
            assert one.verdict == ("approximately" if one.qualified else plain), one.claim.id


@pytest.mark.parametrize(
    ("id", "verdict", "computed"),
    [
        ("C004", "false", f"{2 * 80 * 8 * 128 * 2 * 8192 / 1e9:.3f} GB"),
        ("C005", "approximately", "right for llama2-7b"),
        ("C008", "true", "64"),
        ("C009", "false", "8"),
        ("C011", "approximately", "64, 22, 36, 21"),
        ("C017", "uncheckable", "undisclosed"),
        ("C026", "false", "1,536"),
        ("C045", "approximately", "right for gpt-oss-20b"),
        ("C057", "false", "13.76 GB"),
        ("C041", "false", "which came before it: pre"),
        ("C063", "false", "334.6 GB"),  # 16 bytes for each of 20.9 billion parameters
        ("C085", "uncheckable", "120"),
        ("C086", "true", "0.5126"),
        ("C064", "false", "3.125 %"),
        ("C078", "false", "models of the name qwen3-72b: 0"),
        ("C098", "approximately", "58"),
        ("C114", "true", "42"),
        ("C119", "false", "Pre RMSNorm"),
        ("C138", "true", "202K"),
    ],
)
def test_claims_of_note(ledger: Ledger, id: str, verdict: str, computed: str) -> None:
    """Verdicts and figures that can be worked out by hand."""
    one = next(one for one in ledger.claims if one.claim.id == id)
    assert one.verdict == verdict
    assert computed in one.computed + one.reason


def test_report_is_current(ledger: Ledger) -> None:
    """`reports/claims.md` is what `archsim claims --write-report reports/claims.md --force` writes."""
    assert (ROOT / "reports/claims.md").read_text("utf-8") == markdown(ledger)


# ---------------------------------------------------------------------- the rule
@pytest.mark.parametrize(
    ("stated", "computed", "verdict"),
    [
        ("16.7M", 16.7e6, "true"), ("16.7M", 16_749_999, "true"), ("16.7M", 4096**2, "approximately"),
        ("33.5 MB", 35e6, "false"), ("671B", 671_026_404_352, "true"), ("140 GB", 141.1e9, "true"),
        ("20B", 20.9e9, "false"), ("128 Ki", 131_072, "true"), ("41e9", 7.2e9, "false"), ("6.25 %", 0.0625, "true"),
        ("~4 GB", 4.4e9, "true"), ("1,666", 1722, "false"), ("65M", 63_082_496, "approximately"),
        (64, 65, "approximately"), (64, 64, "true"), (8, 10, "false"), ("MHA", "MHA", "true"), ("MHA", "GQA", "false"),
    ],
)  # fmt: skip
def test_rule(stated: int | str, computed: float | str, verdict: str) -> None:
    """Right at the precision printed, within 3 %, or neither."""
    assert compare_values(stated, computed) == verdict


@pytest.mark.parametrize("text", ["", "many", "12 parsecs", "1.2.3", "0x10", "1e9999"])
def test_no_figure(text: str) -> None:
    """A text that is no figure is an error, never a zero."""
    with pytest.raises(ValueError, match="not a figure"):
        figure(text)


def test_several_models_and_checks() -> None:
    """Right for some models is approximately right; a claim is as good as its worst statement."""
    assert over_models(["true", "true"]) == "true"
    assert over_models(["true", "false"]) == "approximately"
    assert over_models(["false", "false"]) == "false"
    assert together(["true", "approximately"]) == "approximately"
    assert together(["true", "false", "approximately"]) == "false"
    assert together([]) == "uncheckable"


def test_stated_figure_decides() -> None:
    """The same claim with another figure has another verdict."""
    check = {"of": "layers", "computed": "m.layers"}
    right, wrong = (
        judged(models=["llama2-70b"], checks=[{**check, "stated": n}]) for n in (80, 60)
    )  # fmt: skip
    assert (right.verdict, wrong.verdict) == ("true", "false")
    assert "80, not 60" in wrong.reason


def test_qualification_makes_it_approximate_at_best() -> None:
    """A named qualification counts only if its checks hold, and never makes a claim true."""
    checks = [{"of": "n", "stated": 1, "computed": "2"}]
    held = judged(checks=checks, qualified={"by": "if so", "checks": [{"of": "n", "holds": "1 < 2"}]})
    failed = judged(checks=checks, qualified={"by": "if so", "checks": [{"of": "n", "holds": "1 > 2"}]})
    assert (held.verdict, failed.verdict) == ("approximately", "false")
    assert "right only if so" in held.reason


def test_missing_is_uncheckable_whatever_is_computed() -> None:
    """Without a baseline figures are shown, and decide nothing."""
    one = judged(missing="no baseline", checks=[{"of": "n", "stated": 2, "computed": "2"}])
    assert (one.verdict, one.reason) == ("uncheckable", "no baseline")
    assert one.computed == "n: 2"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"checks": [{"of": "n"}]},
        {"checks": [{"of": "n", "stated": 1}]},
        {"checks": [{"of": "n", "stated": 1.5, "computed": "1"}]},
        {"checks": [{"of": "n", "stated": [1, 2], "computed": "1", "models": ["gpt2-xl"]}]},
        {"checks": [{"of": "n", "stated": 1, "computed": "1"}], "verdict": "true"},
    ],
)
def test_malformed_claims_are_refused(fields: dict[str, Any]) -> None:
    """A claim that cannot be checked as written is an error when it is read."""
    with pytest.raises(ValueError, match="validation error"):
        judged(**fields)


def test_an_id_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two claims of one id in two files are an error, not the last one."""
    for name in ("a", "b"):
        text = "source: {title: t}\nclaims: [{id: C001, says: s, missing: m}]\n"
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    monkeypatch.setattr("archsim.ledger.claims.data_file", lambda *_: tmp_path)
    with pytest.raises(SpecError, match="twice"):
        load_claims()


# ---------------------------------------------------------------------- expressions
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7), ("2 ** 10 // 3 % 5", 1), ("-(4 - 6)", 2), ("1 < 2 <= 2", True), ("3 in [1, 2]", False),
        ("not 1 > 2 and 'a' == 'a'", True), ("max(1, n)", 5), ("m.layers", 80), ("m.kv_bytes(1)", 327_680),
        ("min([3, 1, 2])", 1),
    ],
)  # fmt: skip
def test_expressions(text: str, value: Any) -> None:
    """Arithmetic, comparisons, names, functions and quantities."""
    names = {"n": 5, "max": max, "min": min, "m": facts("llama2-70b")}
    assert evaluate(text, names) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "m.__class__", "m.model", "(1).__class__", "m.quantity('layers')",
        "[x for x in [1]]", "lambda: 1", "(x := 1)", "f'{n}'", "{'a': 1}", "[1, 2][0]", "9 ** 9 ** 9", "2 ** 5000",
        "'a' * 1000000000", "n if n else 0", "open('x')", "max(*[1, 2])", "max(**{})", "1 / 0", "unknown", "n(1)",
        "1 +", "", "m.layers.real", "b'x'", "~1", "1 << 9", "n\nn", "1;2", "await n", "0" * 5000,
        "(" * 100 + "1" + ")" * 100 + "+" * 3, "-" * 200 + "1", "max(1, key=2)", "m.kv_bytes('x' )",
    ],
)  # fmt: skip
def test_hostile_expressions(text: str) -> None:
    """Whatever is not arithmetic over the given names is refused with an error of ours."""
    names = {"n": 5, "max": max, "m": facts("llama2-70b")}
    with pytest.raises((SpecError, UsageError)):
        evaluate(text, names)


# ---------------------------------------------------------------------- quantities
@pytest.mark.parametrize(
    ("model", "quantity", "value"),
    [
        ("gpt2-xl", "params", 1_557_611_200), ("gpt2-xl", "position_params", 1024 * 1600),
        ("gpt2-xl", "norm_params", (2 * 48 + 1) * 2 * 1600), ("gpt2-xl", "norm_calls", 97),
        ("llama-7b", "norm_calls", 65), ("gemma3-27b", "windowed_layers", 52),
        ("llama-7b", "ffn_params", 32 * 3 * 4096 * 11008), ("llama2-70b", "group", 8),
        ("gemma3-27b", "full_layers", 10), ("smollm3-3b", "nope_layers", 9), ("deepseek-v3", "moe_layers", 58),
        ("deepseek-v3", "d_ff", (18432, 2048)), ("llama4-maverick", "moe_layers", 24), ("bert-base", "segments", 2),
        ("qwen2-7b", "attention_bias", True), ("llama3-8b", "attention_bias", False), ("gpt-oss-20b", "window", 128),
        ("kimi-k2", "qk_norm", False), ("qwen3-32b", "qk_norm", True), ("gemma2-27b", "softcap", True),
    ],
)  # fmt: skip
def test_quantities(model: str, quantity: str, value: Any) -> None:
    """Quantities that follow from a spec by hand."""
    assert facts(model).quantity(quantity) == value


def test_changed_models_are_counted_anew() -> None:
    """A changed field changes the quantity, and the catalog's model stays what it is."""
    assert facts("llama3-8b", "attention.n_kv_heads=1").quantity("kv_heads") == 1
    assert facts("llama3-8b").quantity("kv_heads") == 8
    assert load_model("llama3-8b").n_layers == facts("llama3-8b").quantity("layers")


@pytest.mark.parametrize(
    ("value", "stated", "unit", "text"),
    [
        (4096**2, "16.7M", None, "16.78M"), (33_554_432, "33.5 MB", None, "33.55 MB"), (65, 64, None, "65"),
        (16e9, "16e9", None, "16e9"), (0.25, "25%", None, "25 %"), (8e9, None, "GB", "8 GB"), (True, None, None, "yes"),
        ((1, 2), None, None, "1 and 2"), ((), None, None, "none"), (1_557_611_200, None, None, "1.558e9"),
    ],
)  # fmt: skip
def test_shown(value: Any, stated: str | int | None, unit: str | None, text: str) -> None:
    """A computed value is shown in the unit of what was stated, to four digits."""
    assert value_text(value, stated, unit) == text


# ---------------------------------------------------------------------- the command
def test_json(archsim: Any) -> None:
    """`--json` is the contract's object: id, verdict, computed and reason of each claim."""
    answer = json.loads(archsim("claims", "--json", "--id", "c004", "--id", "C017").out)
    assert answer["schema"] == "archsim.claims/1"
    assert [one["id"] for one in answer["claims"]] == ["C004", "C017"]
    assert answer["claims"][0]["verdict"] == "false" and "2.684 GB" in answer["claims"][0]["computed"]
    assert answer["claims"][1]["computed"] is None and answer["claims"][1]["reason"]


@pytest.mark.slow
def test_filters(archsim: Any, ledger: Ledger) -> None:
    """`--verdict` leaves only claims with it; an unknown id is a usage error that says which there are."""
    result = archsim("claims", "--verdict", "uncheckable", "-q")
    wanted = [one.claim.id for one in ledger.claims if one.verdict == "uncheckable"]
    assert result.out == "".join(f"{id} uncheckable\n" for id in wanted)
    refused = archsim("claims", "--id", "C146")
    assert refused.code == 2 and "C001 to C145" in refused.err
    with pytest.raises(UnknownName):
        claims(id="nothing")
    with pytest.raises(UsageError):
        claims(verdict="maybe")


def test_one_claim_shows_its_formulas(archsim: Any) -> None:
    """`--id` shows what was stated, what was computed, and the expression."""
    out = archsim("claims", "--id", "C103").out
    assert "m.kv_bytes(131072)" in out and "right only for short contexts" in out


@pytest.mark.slow
def test_html(archsim: Any, tmp_path: Path) -> None:
    """The page holds every claim, needs nothing else, and is the same twice."""
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    for path in (first, second):
        assert archsim("claims", "--html", str(path), "-q").code == 0
    text = first.read_text("utf-8")
    assert text == second.read_text("utf-8")
    assert all(f'id="C{i:03}"' in text for i in range(1, 146))
    assert "default-src 'none'" in text and "<script" not in text and "://" not in text


def test_hostile_texts_are_inert() -> None:
    """Markup in a claim stays text in HTML and in Markdown."""
    nasty = '<script>alert(1)</script> | `x` "y" javascript:z'
    one = judged(checks=[{"of": nasty, "stated": 1, "computed": "2"}], note=nasty)
    made = Judged(
        claim=one.claim.model_copy(update={"says": nasty}), source=Origin(title=nasty), verdict=one.verdict,
        checks=one.checks, qualified=(), also=(nasty,), reason=one.reason,
    )  # fmt: skip
    page = document(Ledger(claims=(made,)))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 4
    table = markdown(Ledger(claims=(made,)))
    assert "<script" not in table.replace("\\<", "")
    assert all(line.replace("\\|", "").count("|") == 6 for line in table.splitlines() if line.startswith("| C"))


def test_quantities_of_training() -> None:
    """Sixteen bytes a parameter in bf16 with AdamW; 6N FLOP a token without attention; width over depth."""
    from archsim.ledger.quantities import facts

    m = facts("llama2-7b")
    params = m.quantity("params")
    matrices = params - 32000 * 4096 - 65 * 4096
    assert m.quantity("train_bytes")("bf16") == 16 * params
    assert m.quantity("train_flops")(1e12, attention="none") == 6e12 * matrices
    assert m.quantity("optimal_tokens")("chinchilla-1") == pytest.approx(21.39 * params, rel=0.01)
    assert m.quantity("aspect_ratio") == 128
