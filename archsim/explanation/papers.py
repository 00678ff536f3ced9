"""Which paper and section defines what a formula is about."""

from __future__ import annotations

from archsim.blocks.layer import walk_layers
from archsim.spec.model import Model

PAPERS = {
    "mha": "multi-head attention: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2",
    "gqa": "grouped-query attention: Ainslie et al. 2023, arXiv:2305.13245, section 2.2",
    "mqa": "multi-query attention: Shazeer 2019, arXiv:1911.02150, section 3",
    "mla": "multi-head latent attention: DeepSeek-V2, arXiv:2405.04434, section 2.1",
    "mlp": "feed-forward network: Vaswani et al. 2017, arXiv:1706.03762, section 3.3",
    "glu": "gated feed-forward network: Shazeer 2020, arXiv:2002.05202, section 2",
    "moe": "mixture of experts: Shazeer et al. 2017, arXiv:1701.06538, section 2",
    "mamba": "selective state spaces: Gu and Dao 2023, arXiv:2312.00752, section 3",
    "mamba2": "state space duality: Dao and Gu 2024, arXiv:2405.21060, section 7",
    "lightning": "lightning attention: Qin et al. 2024, arXiv:2401.04658",
    "gated_delta_net": "gated delta networks: Yang et al. 2024, arXiv:2412.06464",
    "rg_lru": "Griffin: De et al. 2024, arXiv:2402.19427, section 2.4",
    "short_conv": "LFM2 technical report: Liquid AI 2025, arXiv:2511.23404",
    "flops": "FLOPs per token: Kaplan et al. 2020, arXiv:2001.08361, section 2.1",
    "decode": "roofline: Williams et al., CACM 52(4), 2009; Pope et al. 2022, arXiv:2211.05102, section 2",
}  # fmt: skip


def sources_of(model: Model, quantity: str) -> list[str]:
    """Papers that define the blocks a formula is about, then the sources of the spec's numbers."""
    kinds: list[str] = []
    for layer in walk_layers(model.layers):
        about = (
            (layer.attention, layer.mixer)
            if quantity == "kv_cache"
            else (layer.attention, layer.mixer, layer.ffn)
        )
        kinds += [block.kind for block in about if block is not None]
    keys = ["glu" if kind.endswith("glu") else kind for kind in (*kinds, quantity)]
    papers = [PAPERS[key] for key in dict.fromkeys(keys) if key in PAPERS]
    return papers + [f"{s.id}: {s.title} {s.url}".strip() for s in model.sources]
