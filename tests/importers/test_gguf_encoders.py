"""Encoders in a file beside a GGUF model (llama.cpp's mmproj), written as its converter names their tensors."""

from __future__ import annotations

import random
from math import prod
from pathlib import Path
from typing import Any

import gguf
import pytest

import archsim
from archsim.base.errors import SpecError
from archsim.counts.towers import tower_size
from archsim.importers.gguf.encoders import towers_of, with_encoders
from archsim.importers.gguf.reader import read_gguf
from archsim.importers.hf.towers.registry import stages
from archsim.memory.serve_command import serve_command
from archsim.spec.model import Tower

from .gguf_files import Q, Shapes, llama, write

WIDTH = 512
"""Of the language model that `llama` writes."""


def encoder(d: int, ff: int, layers: int, *, gated: bool = False, norm_bias: bool = True) -> Shapes:
    """The layers of a vision transformer with biases, matrices in 16 bits."""
    t: Shapes = {}
    for i in range(layers):
        name = f"v.blk.{i}"
        for ln in ("ln1", "ln2"):
            t[f"{name}.{ln}.weight"] = ((d,), Q.F32)
            if norm_bias:
                t[f"{name}.{ln}.bias"] = ((d,), Q.F32)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            t |= {f"{name}.{part}.weight": ((d, d), Q.F16), f"{name}.{part}.bias": ((d,), Q.F32)}
        for part in ("ffn_gate", "ffn_up") if gated else ("ffn_up",):
            t |= {f"{name}.{part}.weight": ((d, ff), Q.F16), f"{name}.{part}.bias": ((ff,), Q.F32)}
        t |= {f"{name}.ffn_down.weight": ((ff, d), Q.F16), f"{name}.ffn_down.bias": ((d,), Q.F32)}
    return t


def gemma3(d: int = 64, ff: int = 96, layers: int = 2, image: int = 112, width: int = WIDTH) -> tuple[Any, Shapes]:
    """SigLIP, an average of 4 x 4 patches, a norm and one matrix."""
    tensors = encoder(d, ff, layers) | {
        "v.patch_embd.weight": ((14, 14, 3, d), Q.F16), "v.patch_embd.bias": ((d,), Q.F32),
        "v.position_embd.weight": ((d, (image // 14) ** 2), Q.F32), "v.post_ln.weight": ((d,), Q.F32),
        "v.post_ln.bias": ((d,), Q.F32), "mm.soft_emb_norm.weight": ((d,), Q.F32),
        "mm.input_projection.weight": ((width, d), Q.F16),
    }  # fmt: skip
    return keys("gemma3", d, ff, layers, image_size=image, patch_size=14, projection_dim=width), tensors


def qwen25(d: int = 64, ff: int = 96, layers: int = 4, every: int = 2, width: int = WIDTH) -> tuple[Any, Shapes]:
    """Qwen2.5-VL: patches of two frames, gates, RMS norms, windows; four neighbours merged."""
    tensors = encoder(d, ff, layers, gated=True, norm_bias=False) | {
        "v.patch_embd.weight": ((14, 14, 3, d), Q.F16), "v.patch_embd.weight.1": ((14, 14, 3, d), Q.F16),
        "v.post_ln.weight": ((d,), Q.F32), "mm.0.weight": ((4 * d, 4 * d), Q.F16), "mm.0.bias": ((4 * d,), Q.F32),
        "mm.2.weight": ((4 * d, width), Q.F16), "mm.2.bias": ((width,), Q.F32),
    }  # fmt: skip
    more = {"n_wa_pattern": every, "image_size": 560, "patch_size": 14, "projection_dim": width}
    return keys("qwen2.5vl_merger", d, ff, layers, **more), tensors


def qwen2(d: int = 64, layers: int = 3, width: int = WIDTH) -> tuple[Any, Shapes]:
    """Qwen2-VL: layer norms, four times as wide inside, no windows."""
    _, gated = qwen25(d, 4 * d, layers, 1, width)
    tensors = encoder(d, 4 * d, layers) | {name: gated[name] for name in gated if not name.startswith("v.blk.")}
    tensors["v.post_ln.bias"] = ((d,), Q.F32)
    more = {"image_size": 560, "patch_size": 14, "projection_dim": width}
    return keys("qwen2vl_merger", d, 4 * d, layers, **more), tensors


def qwen3(
    d: int = 64, ff: int = 96, layers: int = 4, taps: tuple[int, ...] = (1, 2), rows: int = 64, width: int = WIDTH
) -> tuple[Any, Shapes]:
    """Qwen3-VL: one matrix for queries, keys and values, a table of positions, some layers merged as well."""
    tensors = {k: v for k, v in encoder(d, ff, layers).items() if not any(f".attn_{x}." in k for x in "qkv")}
    for i in range(layers):
        part = f"v.blk.{i}.attn_qkv"
        tensors |= {f"{part}.weight": ((d, 3 * d), Q.F16), f"{part}.bias": ((3 * d,), Q.F32)}
    tensors |= {
        "v.patch_embd.weight": ((16, 16, 3, d), Q.F16), "v.patch_embd.weight.1": ((16, 16, 3, d), Q.F16),
        "v.patch_embd.bias": ((d,), Q.F32), "v.position_embd.weight": ((d, rows), Q.F32),
    }  # fmt: skip
    norms = {"v.post_ln": d} | {f"v.deepstack.{i}.norm": 4 * d for i in taps}
    for name, n in norms.items():
        tensors |= {f"{name}.weight": ((n,), Q.F32), f"{name}.bias": ((n,), Q.F32)}
    for one, two in (("mm.0", "mm.2"), *((f"v.deepstack.{i}.fc1", f"v.deepstack.{i}.fc2") for i in taps)):
        tensors |= {
            f"{one}.weight": ((4 * d, 4 * d), Q.F16), f"{one}.bias": ((4 * d,), Q.F32),
            f"{two}.weight": ((4 * d, width), Q.F16), f"{two}.bias": ((width,), Q.F32),
        }  # fmt: skip
    known = keys("qwen3vl_merger", d, ff, layers, image_size=768, patch_size=16, projection_dim=width,
                 spatial_merge_size=2)  # fmt: skip
    return known | {"vision.is_deepstack_layers": [i in taps for i in range(layers)]}, tensors


def llava(width: int = WIDTH) -> tuple[Any, Shapes]:
    """CLIP without its last norm, and two matrices."""
    d, ff = 64, 96
    tensors = encoder(d, ff, 3) | {
        "v.class_embd": ((d,), Q.F32), "v.patch_embd.weight": ((14, 14, 3, d), Q.F16),
        "v.position_embd.weight": ((d, 65), Q.F32), "v.pre_ln.weight": ((d,), Q.F32), "v.pre_ln.bias": ((d,), Q.F32),
        "mm.0.weight": ((d, width), Q.F16), "mm.0.bias": ((width,), Q.F32),
        "mm.2.weight": ((width, width), Q.F16), "mm.2.bias": ((width,), Q.F32),
    }  # fmt: skip
    return keys("mlp", d, ff, 3, image_size=112, patch_size=14, projection_dim=768), tensors


def internvl(width: int = WIDTH) -> tuple[Any, Shapes]:
    """InternVL: a class token in the table of positions, learned factors, a norm and two matrices at the end."""
    d, ff = 64, 96
    tensors = encoder(d, ff, 3) | {
        "v.class_embd": ((d,), Q.F32), "v.patch_embd.weight": ((14, 14, 3, d), Q.F16),
        "v.patch_embd.bias": ((d,), Q.F32),
        "v.position_embd.weight": ((d, 65), Q.F32), "mm.model.mlp.0.weight": ((4 * d,), Q.F32),
        "mm.model.mlp.0.bias": ((4 * d,), Q.F32), "mm.model.mlp.1.weight": ((4 * d, width), Q.F16),
        "mm.model.mlp.1.bias": ((width,), Q.F32), "mm.model.mlp.3.weight": ((width, width), Q.F16),
        "mm.model.mlp.3.bias": ((width,), Q.F32),
    }  # fmt: skip
    tensors |= {f"v.blk.{i}.ls{n}.weight": ((d,), Q.F32) for i in range(3) for n in (1, 2)}
    return keys("internvl", d, ff, 3, image_size=112, patch_size=14, projection_dim=width), tensors


def pixtral(width: int = WIDTH) -> tuple[Any, Shapes]:
    """Mistral 3's: no biases, gates, neighbours merged, and the vector that ends a row."""
    d, ff = 64, 96
    plain = {k: v for k, v in encoder(d, ff, 2, gated=True, norm_bias=False).items() if not k.endswith(".bias")}
    tensors = plain | {
        "v.patch_embd.weight": ((14, 14, 3, d), Q.F16), "v.pre_ln.weight": ((d,), Q.F32),
        "mm.input_norm.weight": ((d,), Q.F32), "mm.patch_merger.weight": ((4 * d, d), Q.F16),
        "mm.1.weight": ((d, width), Q.F16), "mm.2.weight": ((width, width), Q.F16),
        "v.token_embd.img_break": ((width,), Q.F32),
    }  # fmt: skip
    more = {"image_size": 560, "patch_size": 14, "projection_dim": width, "spatial_merge_size": 2}
    return keys("pixtral", d, ff, 2, **more), tensors


def keys(projector: str, d: int, ff: int, layers: int, **more: int) -> dict[str, object]:
    vision = {"embedding_length": d, "feed_forward_length": ff, "block_count": layers, "attention.head_count": 4}
    return {"projector_type": projector} | {f"vision.{key}": n for key, n in (vision | more).items()}


def stored(tensors: Shapes, leave: str = "v.token_embd.") -> tuple[int, int]:
    """Parameters and bytes, without the vectors that the language model has."""
    own = [(shape, kind) for name, (shape, kind) in tensors.items() if not name.startswith(leave)]
    each = [(prod(shape), *gguf.GGML_QUANT_SIZES[kind]) for shape, kind in own]
    return sum(n for n, _, _ in each), sum(n // block * size for n, block, size in each)


def beside(folder: Path, known: dict[str, object], tensors: Shapes, name: str = "mmproj-model-f16.gguf") -> Path:
    """A model's file with a file of encoders beside it."""
    path = write(folder / "model.gguf", "llama", *llama())
    write(folder / name, "clip", known, tensors)
    return path


CASES = {"gemma3": gemma3, "internvl": internvl, "llava": llava, "pixtral": pixtral,
         "qwen2vl": qwen2, "qwen2.5vl": qwen25, "qwen3vl": qwen3}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_tower_has_the_parameters_and_bytes_of_its_file(case: str, tmp_path: Path) -> None:
    """With stages, so that its operations can be counted; stored as the file has it, whatever the model's weights."""
    known, tensors = CASES[case]()
    path = beside(tmp_path, known, tensors)
    (tower,) = archsim.load_model(path).towers
    assert tower.stages and tower_size(tower) == stored(tensors)[0]
    alone, both = archsim.count(path), archsim.count(path, parts=("vision",))
    assert (both.total - alone.total, both.weight_bytes - alone.weight_bytes) == stored(tensors)


SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "image_size": 896,
          "num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 14, "vision_use_head": False}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "config", "written"),
    [
        ("gemma3", SIGLIP, gemma3(1152, 4304, 27, 896, 2560)),
        ("qwen2_vl", {"hidden_size": 3584, "embed_dim": 1280}, qwen2(1280, 32, 3584)),
        ("qwen2_5_vl", {"hidden_size": 1280, "out_hidden_size": 3584}, qwen25(1280, 3420, 32, 8, 3584)),
        ("qwen3_vl", {"out_hidden_size": 4096}, qwen3(1152, 4304, 27, (8, 16, 24), 2304, 4096)),
    ],
)
def test_the_tower_is_that_of_the_config(
    model_type: str, config: dict[str, Any], written: tuple[Any, Shapes], tmp_path: Path
) -> None:
    """Encoders of Gemma 3 4B and of Qwen's 7B and 8B in their published sizes: what config.json says of them."""
    known, tensors = written
    known["vision.attention.head_count"] = 16
    path, width = write(tmp_path / "mmproj.gguf", "clip", known, tensors), known["vision.projection_dim"]
    wanted = stages("vision", config, {"mm_tokens_per_image": 256}, model_type, width)
    (found,) = towers_of(read_gguf(path), width)
    assert Tower.model_validate(found).stages == Tower.model_validate(wanted).stages
    assert found["images"] == wanted["images"]


def test_windows_come_from_their_pattern(tmp_path: Path) -> None:
    """Every second of Qwen2.5-VL's layers here sees the whole image."""
    (tower,) = archsim.load_model(beside(tmp_path, *qwen25())).towers
    layers = next(stage for stage in tower.stages if stage.kind == "layers").layers
    assert "chunked" in str(layers) and tower.images is not None and tower.images.factor == 28


def test_what_is_not_understood_is_counted(tmp_path: Path) -> None:
    """An unknown projector, one more matrix, an audio encoder: their sizes are exact, what they do is not known."""
    known, tensors = gemma3()
    more: Shapes = {"mm.extra.weight": ((7, 9), Q.F16)}
    sound: Shapes = {"a.conv1d.0.weight": ((3, 80, 64), Q.F16), "mm.a.mlp.0.weight": ((64, WIDTH), Q.Q8_0)}
    for change, extra in (({"projector_type": "new"}, {}), ({}, more), ({}, sound)):
        path = beside(tmp_path, known | change, tensors | extra)
        towers = {t.name: t for t in archsim.load_model(path).towers}
        for name, own in (("vision", tensors | (more if extra is more else {})), ("audio", sound)):
            if name in towers:
                assert tower_size(towers[name]) == stored(own)[0]
                assert (
                    archsim.count(path, parts=(name,)).weight_bytes - archsim.count(path).weight_bytes == stored(own)[1]
                )
        assert ("audio" in towers) == (extra is sound)
        assert bool(towers["vision"].stages) == (extra is sound)


def test_which_file_is_taken(tmp_path: Path) -> None:
    """Of several the one nearest to 16 bits; none of another width, none that is damaged."""
    known, tensors = gemma3()
    path = beside(tmp_path, known, tensors)
    wide = {name: (shape, Q.F32) for name, (shape, _) in tensors.items()}
    write(tmp_path / "mmproj-a-f32.gguf", "clip", known, wide)
    write(tmp_path / "mmproj-a-other.gguf", "clip", *gemma3(width=768))
    (tmp_path / "mmproj-broken.gguf").write_bytes(b"GGUF" + bytes(40))
    both = archsim.count(path, parts=("vision",)).weight_bytes - archsim.count(path).weight_bytes
    assert both == stored(tensors)[1]
    for other in ("mmproj-model-f16.gguf", "mmproj-a-f32.gguf"):
        (tmp_path / other).unlink()
    assert archsim.load_model(path).towers == ()


def test_mutated_files(tmp_path: Path) -> None:
    """Whatever bytes a file of encoders holds, it is left aside, or gives a valid tower."""
    known, tensors = gemma3()
    good = write(tmp_path / "mmproj.gguf", "clip", known, tensors).read_bytes()
    bad, draw = tmp_path / "mmproj-bad.gguf", random.Random(7)
    document = {"name": "m", "d_model": WIDTH}
    seen = set()
    for _ in range(150):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(24, len(data))] = draw.randrange(256)
        bad.write_bytes(data)
        towers = with_encoders(document, [bad]).get("towers", [])
        seen.add(len(towers) and ("stages" if "stages" in towers[0] else "size"))
        for tower in towers:
            assert Tower.model_validate(tower)
    assert seen >= {0, "stages", "size"}


def test_llama_cpp_counts_it_on_request(tmp_path: Path) -> None:
    """`fit --with vision`: the file's bytes beside the model's."""
    known, tensors = gemma3()
    path = beside(tmp_path, known, tensors)
    common: Any = {"engine": "llama.cpp", "max_model_len": 2048, "suggest": False}
    alone, both = (archsim.fit(path, "rtx-4090", **common, parts=parts) for parts in ((), ("vision",)))
    assert both.budget.weights - alone.budget.weights == stored(tensors)[1]
    assert "--mmproj" in serve_command(both) and "--mmproj" not in serve_command(alone)


def test_encoders_alone_are_no_model(tmp_path: Path) -> None:
    beside(tmp_path, *gemma3())
    with pytest.raises(SpecError, match="only encoders") as caught:
        archsim.load_model(tmp_path / "mmproj-model-f16.gguf")
    assert "language model's file" in caught.value.hints[0]
