"""One update of the page, from a query to what Dash is given."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

from archsim import api
from archsim.base.errors import SpecError
from archsim.ui.answers import Answers, command_of
from archsim.ui.choices import choices
from archsim.ui.state import Candidate, Load, State, parse_state
from archsim.ui.uploads import Uploads, read_upload

ROOT = Path(__file__).resolve().parents[2]
KNOWN = choices(built_in=True)


def test_answers_are_those_of_the_estimator() -> None:
    """One answer against the Python function, by its JSON."""
    found = Answers(Uploads()).answer(Candidate(model="gpt2-small", hw="t4", engine="vllm"), Load(batch=3))
    assert found.estimate is not None
    expected = api.estimate("gpt2-small", "t4", engine="vllm", batch=3)
    assert found.estimate.to_dict() == expected.to_dict()


@pytest.mark.slow
def test_random_choices_equal_the_command(archsim) -> None:
    """Twenty states: the page's JSON is what its command line prints."""
    rng, answers, equal = random.Random(2026), Answers(Uploads()), 0
    while equal < 20:
        candidate = Candidate(
            model=rng.choice(KNOWN.models), hw=rng.choice(KNOWN.devices), devices=rng.choice([None, 1, 2, 8]),
            weights=rng.choice(["", "fp8", "int4"]), engine=rng.choice(["generic", "vllm", "sglang", "llamacpp"]),
            tp=rng.choice([None, None, 2]), price=rng.choice(["", "2.5", "cheapest"]),
            changes=rng.choice([(), (), ("max_context=4096",)]),
        )  # fmt: skip
        mode = rng.choice(["batch", "concurrency"])
        load = Load(input_len=rng.randint(1, 9000), output_len=rng.randint(1, 900), mode=mode, batch=rng.randint(1, 64))
        found, command = answers.answer(candidate, load), command_of(candidate, load)
        done = archsim(*shlex.split(command)[1:], "--json")
        printed = json.loads(done.out)
        if found.estimate is None:
            assert found.error is not None and printed["code"] == found.error.code, command
            continue
        assert found.estimate.to_dict() == printed, command
        equal += 1


def test_an_update_has_a_card_for_each_candidate() -> None:
    """And one sentence, and the canonical link."""
    pytest.importorskip("dash")
    from archsim.ui.update import update, words_of

    shown = update("model=gpt2-small&hw=t4&model2=gpt2-medium&hw2=t4&oops=1", KNOWN, Answers(Uploads()))
    findings, sentence, cards = words_of(shown)
    assert len(cards) == 2 and len(findings) == 1 and sentence.startswith("A is fastest: ")
    assert parse_state(shown.query, KNOWN, {}) == (shown.state, ())
    assert [c["model"] for c in shown.controls["candidates"]] == ["gpt2-small", "gpt2-medium"]


def test_what_cannot_be_answered_says_why() -> None:
    """An engine that the device does not run, and a model that does not fit."""
    pytest.importorskip("dash")
    from archsim.ui.update import update, words_of

    shown = update("model=deepseek-v3&hw=t4&devices=1", KNOWN, Answers(Uploads()))
    _, sentence, cards = words_of(shown)
    assert "does not fit" in sentence and "does not fit" in json.dumps(cards[0].to_plotly_json(), default=str)


def test_an_update_has_the_charts_that_are_wanted() -> None:
    """In the theme that was asked for; those out of sight, drawings and files follow when the controls rest."""
    pytest.importorskip("dash")
    from dash import no_update

    from archsim.ui.callbacks import answer_request
    from archsim.ui.layout import CHARTS

    query = "model=gpt2-small&hw=t4&model2=gpt2-medium&hw2=h100"
    request = {"query": query, "theme": "dark", "width": 500, "at": 7, "charts": ["memory", "roof0"]}
    answers = Answers(Uploads())
    answered, *_, drawings, files = answer_request(request, KNOWN, answers)
    drawn = {key: chart for key, chart in answered["charts"].items() if chart is not None}
    assert answered["at"] == 7 and sorted(drawn) == ["memory", "roof0"]
    assert drawings is no_update and files is no_update
    assert all(chart["figure"]["layout"]["paper_bgcolor"] == "#0f1318" for chart in drawn.values())
    rest = {"query": query, "rest": True}
    answered, *words, drawings, files = answer_request(rest, KNOWN, answers)
    assert all(word is no_update for word in words) and len(drawings) == 2 and len(files) == 3
    assert [key for key in CHARTS if answered["charts"][key] is None] == ["roof2", "roof3"]


def test_files_to_take_along_are_those_of_the_commands() -> None:
    """The estimate, the spec and the report; a candidate that is not there has none."""
    pytest.importorskip("dash")
    from archsim.ui.server import Site, make_app

    client, query = make_app(Site()).server.test_client(), "model=gpt2-small&hw=t4&batch=2"
    place = {"base_url": "http://localhost", "query_string": query}
    found = client.get("/candidate/1/estimate.json", **place)
    assert found.json == api.estimate("gpt2-small", "t4", engine="vllm", batch=2).to_dict()
    assert "attachment" in found.headers["Content-Disposition"]
    assert client.get("/candidate/1/model.yaml", **place).text.lstrip("# ").startswith(("name", "yaml", "GPT"))
    picture = client.get("/drawing.svg?model=gpt2-small&theme=dark", base_url="http://localhost")
    assert picture.mimetype == "image/svg+xml" and "124,439,808" in picture.text
    assert client.get("/drawing.svg?model=../x", base_url="http://localhost").status_code == 404
    for name in ("/candidate/2/model.yaml", "/candidate/0/model.yaml", "/candidate/1/passwd", "/candidate/1/..%2fx"):
        assert client.get(name, **place).status_code == 404, name


def test_a_changed_model_is_taken_along(tmp_path: Path) -> None:
    """Its spec in YAML is the model with the changes, of the catalog and of an upload; its drawing is another."""
    pytest.importorskip("dash")
    from archsim.ui.server import Site, make_app

    client, query = make_app(Site()).server.test_client(), "model=llama3.1-8b&hw=h100-sxm&set=attention.n_kv_heads%3D4"
    text = client.get("/candidate/1/model.yaml", base_url="http://localhost", query_string=query).text
    (tmp_path / "changed.yaml").write_text(text)
    expected = api.count("llama3.1-8b", set="attention.n_kv_heads=4")
    assert api.count(str(tmp_path / "changed.yaml")).to_dict()["params"] == expected.to_dict()["params"]
    picture = client.get("/drawing.svg?model=llama3.1-8b&set=attention.n_kv_heads=4", base_url="http://localhost")
    assert f"{expected.total:,}" in picture.text
    uploads = Uploads()
    uploads.add(read_upload(text.encode(), "changed.yaml", KNOWN))
    (key,) = uploads
    changed = Answers(uploads).model(key, ("attention.n_kv_heads=8",))
    assert api.count(changed).total == api.count("llama3.1-8b").total
    with pytest.raises(SpecError, match="more than 1,024"):
        Answers(uploads).model(key, ("layers.repeat=5000",))


def test_a_price_is_part_of_the_answer() -> None:
    """The card has dollars, the sentence the cheapest, the command its option."""
    pytest.importorskip("dash")
    from archsim.ui.update import update, words_of

    query = "model=gpt2-small&hw=t4&price=0.5&model2=gpt2-small&hw2=h100-sxm&price2=1.5&set2=layers.repeat%3D4"
    shown = update(query, KNOWN, Answers(Uploads()))
    findings, sentence, cards = words_of(shown)
    assert findings == [] and "the cheapest, $" in sentence
    assert "per million output tokens" in json.dumps(cards[0].to_plotly_json(), default=str)
    second = shown.state.candidates[1]
    assert command_of(second, shown.state.load).endswith("--price 1.5 --set layers.repeat=4")


def test_a_rate_is_simulated() -> None:
    """The table under load has the figures of `archsim simulate`."""
    pytest.importorskip("dash")
    from archsim.ui.load_panel import LoadRuns, cells_of, load_panel

    answers = Answers(Uploads())
    state, _ = parse_state("model=gpt2-small&hw=t4&rate=2&output-len=8&input-len=64", KNOWN, {})
    runs = LoadRuns(answers)
    assert load_panel(state, runs) is not None and load_panel(State(), runs) is None
    expected = api.simulate(
        "gpt2-small", "t4", engine="vllm", rate=2.0, input_len=64, output_len=8, requests=400, replications=1,
        expected_only=True,
    )  # fmt: skip
    found = runs.of(answers.of(state)[0])
    assert cells_of(found) == cells_of(expected) and found.to_dict()["metrics"] == expected.to_dict()["metrics"]


def test_the_page_is_served_to_this_machine_alone() -> None:
    """Another name of the address (DNS rebinding) and other pages' requests are refused."""
    pytest.importorskip("dash")
    from archsim.ui.server import Site, make_app

    client = make_app(Site()).server.test_client()
    assert client.get("/", base_url="http://127.0.0.1:8050").status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "[::2]", "localhost.", "0.0.0.0"):
        assert client.get("/", base_url=f"http://{host}:8050").status_code == 421, host
    foreign = {"Origin": "http://evil.example"}
    body = {"output": "..answered.data..", "inputs": []}
    assert (
        client.post("/_dash-update-component", json=body, headers=foreign, base_url="http://localhost").status_code
        == 403
    )
    policy = client.get("/", base_url="http://localhost").headers["Content-Security-Policy"]
    assert "unsafe-eval" not in policy and "default-src 'none'" in policy


def test_requests_that_make_no_sense_are_answered_in_a_line(capfd) -> None:
    """By whoever sends them: no traceback, and nothing of the server's files."""
    pytest.importorskip("dash")
    from archsim.ui.callbacks import answer_request
    from archsim.ui.server import Site, make_app

    client = make_app(Site()).server.test_client()
    for body in (b"", b"[]", b"{}", b"null", b"{" * 999, b'{"output": "x"}', b'{"output": "..url.search.."}'):
        sent = {"data": body, "content_type": "application/json", "base_url": "http://localhost"}
        found = client.post("/_dash-update-component", **sent)
        assert found.status_code >= 400 and len(found.data) < 300, body
    for path in ("/_dash-component-suites/dash/../../../etc/passwd", "/_dash-component-suites/os/path.py",
                 "/assets/../server.py", "/assets/%2e%2e/server.py", "/etc/passwd"):  # fmt: skip
        found = client.get(path, base_url="http://localhost")
        assert found.status_code >= 400 and len(found.data) < 300, path
    for odd in ({}, {"query": 5}, {"charts": 5}, {"charts": [[1]]}, {"width": "x"}, {"theme": {}}, {"rest": [1]}):
        assert answer_request(odd, KNOWN, Answers(Uploads()))[0]["query"] == State().query()
    bad = client.get("/candidate/1/model.yaml?model=no-such", base_url="http://localhost")
    assert bad.status_code == 422 and "no model named" in bad.text
    assert "Traceback" not in capfd.readouterr().err


def test_a_public_page_has_limits() -> None:
    """A visitor who asks too often is told to wait; a page that is called by a name is called by no other."""
    pytest.importorskip("dash")
    from archsim.ui.guard import UPDATES
    from archsim.ui.server import Site, make_app

    client = make_app(Site(public=True)).server.test_client()
    codes = [client.get("/drawing.svg?model=x", base_url="https://a.hf.space").status_code for _ in range(60)]
    assert (
        codes[0] == 404
        and codes.count(429) >= 60 - UPDATES[1] - 15
        and "X-Frame-Options" not in client.get("/").headers
    )
    other = {"base_url": "https://a.hf.space", "environ_overrides": {"REMOTE_ADDR": "192.0.2.7"}}
    assert client.get("/drawing.svg?model=x", **other).status_code == 404
    assert client.post("/hub", json={"id": "a/b"}, **other).status_code == 404
    named = make_app(Site(public=True, hosts=("page.example",))).server.test_client()
    assert named.get("/", base_url="https://page.example").status_code == 200
    assert named.get("/", base_url="https://other.example").status_code == 421


def test_a_bucket_fills_again() -> None:
    """Tokens come back with time, up to the burst, for each visitor by itself."""
    pytest.importorskip("flask")
    from archsim.ui.guard import Bucket

    bucket = Bucket(rate=2, burst=3, most=2)
    assert [bucket.take("a", now=0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take("b", now=0.0) == 0 and bucket.take("a", now=0.25) == 0.25
    assert bucket.take("a", now=0.5) == 0 and bucket.take("a", now=100.0) == 0


def test_the_hub_is_asked_for_ids_alone(monkeypatch) -> None:
    """What comes back is an upload; a path or an address is not an id, and without `--hub` there is no such place."""
    pytest.importorskip("dash")
    from archsim.ui import hub_route
    from archsim.ui.server import Site, make_app

    asked = []
    monkeypatch.setattr(hub_route, "config_of", lambda name: asked.append(name) or ROOT / "pyproject.toml")
    client = make_app(Site(hub=True)).server.test_client()
    for bad in ("../../etc", "a/b/c", "/etc/passwd", "http://x/y", "a/../b", "", None, 7):
        answer = client.post("/hub", json={"id": bad}, base_url="http://localhost").json
        assert "key" not in answer and "is not a Hub id" in answer["message"]
    assert asked == []
    answer = client.post("/hub", json={"id": "org/name"}, base_url="http://localhost").json
    assert asked == ["org/name"] and "key" not in answer
    plain = make_app(Site()).server.test_client()
    assert plain.post("/hub", json={"id": "org/name"}, base_url="http://localhost").status_code == 404


def test_the_command_needs_its_extra(archsim, monkeypatch) -> None:
    """Without dash the error names the extra; options that do not go together are refused."""
    from archsim.ui import start

    monkeypatch.setattr(start, "find_spec", lambda name: None)
    done = archsim("ui")
    assert done.code == 2 and "archsim[ui]" in done.err and "Traceback" not in done.err
    for words in (("--host", "0.0.0.0"), ("--public", "--hub"), ("--proxies", "1"), ("--allow-host", "x")):
        refused = archsim("ui", *words)
        assert refused.code == 2 and "--public" in refused.err, words


def test_a_link_of_a_state_is_short() -> None:
    """Of the usual one: nothing that is a default by itself but the model, device and engine."""
    assert len(State().query()) < 120
