"""A model of the Hugging Face Hub by its name: the one file that describes it, where a user asks for it.

archsim opens no connection by itself. With `--hub` it asks `huggingface_hub`, which keeps what it has fetched in its
own cache, for `config.json` and for nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

from archsim.base.diagnostics import inert, quote, shorten
from archsim.base.errors import UnknownName, UsageError
from archsim.spec.catalog import HUB_ID, is_known

FILE = "config.json"


def fetched(name: str) -> str:
    """The path of the config.json of `org/name`; any other name, and one that the catalog has, as it is."""
    return name if HUB_ID.fullmatch(name) is None or is_known("models", name) else str(config_of(name))


def config_of(name: str) -> Path:
    """The config.json of a repository, from the cache of huggingface_hub or by one request for it.

    Raises UsageError where huggingface_hub is not installed, and UnknownName where the Hub does not give the file.
    """
    by_hand = f"or download it yourself: `hf download {name} {FILE}`, and pass the path"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # else it asks the Hub for more, and says more
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError:
        hints = ("`pip install huggingface_hub`", by_hand)
        raise UsageError("`--hub` needs huggingface_hub, which is not installed", hints=hints) from None
    disable_progress_bars()
    try:
        return Path(hf_hub_download(repo_id=name, filename=FILE))
    except Exception as error:  # of the network, the Hub or the disk: whatever it is, there is no file
        raise UnknownName(
            f"cannot get {FILE} of {quote(name)} from the Hub: {_reason(error)}", hints=(by_hand,)
        ) from None


REASONS = {
    "RepositoryNotFoundError": "no such repository, or a private one",
    "GatedRepoError": "a gated repository: request access from its owner, then run `hf auth login`",
    "EntryNotFoundError": f"the repository holds no {FILE}",
    "RemoteEntryNotFoundError": f"the repository holds no {FILE}",
    "LocalEntryNotFoundError": "no connection, and the file is not in the cache",
    "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set, and the file is not in the cache",
}
"""Errors of huggingface_hub, in a few words."""


def _reason(error: Exception) -> str:
    known = (REASONS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in REASONS)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next(known, shorten(inert(lines[0]), 200))
