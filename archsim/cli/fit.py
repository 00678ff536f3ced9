"""`archsim fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from archsim.base.json_types import JsonObject
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import fit as f
from archsim.cli.studies.catalog import print_catalog

if TYPE_CHECKING:
    from archsim.memory.check_fit import Fit


def fit(
    context: typer.Context,
    hw: f.DevicesAsked,
    model: f.ModelAsked = None,
    devices: f.Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    ep: o.Ep = None,
    dp: o.Dp = None,
    enable_expert_parallel: f.Experts = False,
    enable_dp_attention: f.DpAttention = False,
    batch: o.Batch = 1,
    input_len: o.InputLen = 2048,
    output_len: o.OutputLen = 256,
    source_len: o.SourceLen = None,
    weights: f.Weights = None,
    kv_cache_dtype: o.KvDtype = None,
    cache_type_k: f.CacheK = None,
    cache_type_v: f.CacheV = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    max_model_len: f.Length = None,
    max_num_seqs: f.Seqs = None,
    max_num_batched_tokens: f.StepTokens = None,
    gpu_memory_utilization: f.Utilization = None,
    mem_fraction_static: f.Static = None,
    block_size: f.Block = None,
    enforce_eager: f.Eager = False,
    visible_memory: f.Visible = None,
    n_gpu_layers: f.Layers = None,
    cpu_moe: f.CpuMoe = False,
    n_cpu_moe: f.CpuMoeLayers = 0,
    num_gpu_experts: f.GpuExperts = None,
    kv_cache_memory_bytes: f.CacheBytes = None,
    cpu_offload_gb: f.CpuOffload = 0.0,
    kv_offloading_size: f.CacheOffload = 0.0,
    override_tensor: f.Overrides = None,
    split_mode: f.Mode = None,
    tensor_split: f.Proportions = None,
    draft_model: f.Draft = None,
    draft_weights: f.DraftWeights = None,
    host_bandwidth: f.HostRate = None,
    max_loras: f.Loras = 0,
    max_lora_rank: f.LoraRank = 16,
    with_: f.Parts = "",
    without: o.Without = "",
    check: f.Check = False,
    command: f.Command = False,
    set_: o.Changes = None,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Whether it starts, how many KV tokens are left, and which flag to change.

    Without MODEL: every model of the catalog that the device holds, and how fast each decodes. The answer is that of
    the engine: its memory fraction, page size and activations, at the version given.
    """
    names = [name.strip() for text in hw for name in text.split(",") if name.strip()] or [""]
    if model is None:
        print_catalog(names, context.params)
        return
    forms: list[str | None] = [form.strip() for form in (weights or "").split(",") if form.strip()]
    answers = [_answer(model, name, {**context.params, "weights": form}) for name in names for form in forms or [None]]
    if command:
        from archsim.memory.serve_command import serve_command

        output.emit("".join(f"{serve_command(answer)}\n" for answer in answers))
        return
    _print(answers, (model, names), context.params)
    for answer in answers:
        output.warn(answer.warnings)
    if check and not all(answer.fits for answer in answers):
        raise typer.Exit(1)


VIEW = frozenset({"model", "hw", "check", "command", "set_", "with_", "enable_expert_parallel", "json", "format",
                  "verbose", "quiet", "no_color"})  # fmt: skip
"""Parameters that say how the answer is wanted, or are translated."""


def _answer(model: str, hw: str, params: JsonObject) -> Fit:
    from archsim import api
    from archsim.counts.count import checked_parts

    options = {name: value for name, value in params.items() if name not in VIEW}
    if params["enable_expert_parallel"] and options["ep"] is None:
        options["ep"] = (options["tp"] or 1) * (options["dp"] or 1)
    options["parts"] = checked_parts(params["with_"])
    if params["command"] or (params["quiet"] and _layout(params) == o.Layout.table):
        options["suggest"] = False  # neither prints any
    return api.fit(model, hw, set=tuple(params["set_"] or ()), **options)


def _print(answers: Sequence[Fit], asked: tuple[str, list[str]], params: JsonObject) -> None:
    from archsim.render.flat import flatten
    from archsim.render.pages import fit as fit_page

    layout = _layout(params)
    output.emit_answer(
        layout, params["no_color"], lambda: _document(answers),
        lambda: _page(answers[0], asked, params) if len(answers) == 1 else fit_page.table(answers),
        rows=lambda: [flatten(answer.to_dict()) for answer in answers],
        bare=(lambda: "".join(map(fit_page.bare, answers))) if params["quiet"] else None,
    )  # fmt: skip
    if params["quiet"]:
        output.note_text_part(asked[0])
        output.note_other_format(answers[0].assumptions)


def _layout(params: JsonObject) -> o.Layout:
    return o.Layout.json if params["json"] else o.Layout(params["format"])


def _document(answers: Sequence[Fit]) -> JsonObject:
    if len(answers) == 1:
        return answers[0].to_dict()
    return {"schema": "archsim.fit_devices/1", "answers": [answer.to_dict() for answer in answers]}


def _page(answer: Fit, asked: tuple[str, list[str]], params: JsonObject) -> Any:
    from archsim.render.pages.fit import page
    from archsim.render.provenance import inputs

    model, (hw,) = asked
    files = inputs(models=model, hw=hw, engines=answer.engine.rules.name)
    changes = tuple(params["set_"] or ())
    return page(
        answer, inputs=files, asked=(model, hw), options=params, changes=changes, verbose=params["verbose"]
    )  # fmt: skip
