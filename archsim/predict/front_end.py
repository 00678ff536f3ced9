"""The work in front of an engine, as `simulate` is asked for it: as measured of runs under load, or as stated."""

from __future__ import annotations

from math import isfinite

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.engines.overhead import EngineOverheads, FrontWork, front_work_of
from archsim.serving.front import NO_FRONT_END, FrontEnd
from archsim.timing.calibration import Store


def front_end_of(
    asked: str | None, engine: str, overheads: EngineOverheads, store: Store, vendor: str = "", *, pools: bool = False
) -> FrontEnd:
    """The front end that `--front-end` says: `none`, `measured`, or milliseconds of a request and microseconds of each
    token of its prompt. vendor: of the devices. pools: as of `front_end`. Raises UsageError.
    """
    text = "none" if asked is None else str(asked).strip().lower()
    if text == "none":
        return NO_FRONT_END
    if text == "measured":
        return front_end(front_work_of(store.engines.get(engine, {}), overheads.first_token, vendor), pools=pools)
    try:
        request_ms, token_us = (*map(float, text.split(",")), 0.0)[:2]
    except ValueError:
        request_ms = token_us = -1.0
    if text.count(",") > 1 or not all(0 <= value < 1e6 and isfinite(value) for value in (request_ms, token_us)):
        raise UsageError(
            f"`--front-end` is none, measured, or MS[,US]: milliseconds of a request and microseconds of a token, not "
            f"{quote(text)}"
        )
    return front_end(FrontWork(request_ms * 1e-3, token_us * 1e-6))


def left_out(
    asked: str | None, engine: str, overheads: EngineOverheads, store: Store, vendor: str = "", *, pools: bool = False
) -> FrontEnd:
    """The front end that runs under load of an engine show, where `--front-end` is not given and a simulation leaves it
    out; none where there are no such runs. Arguments as of `front_end_of`.
    """
    if asked is not None or not store.engines.get(engine, {}).get("front_end"):
        return NO_FRONT_END
    return front_end_of("measured", engine, overheads, store, vendor, pools=pools)


def front_end(work: FrontWork, *, pools: bool = False) -> FrontEnd:
    """What requests pass, as the simulation has it. pools: whether prompts and answers have servers of their own."""
    wait_s, line_s = (work.pools_s, work.line_s) if pools else (0.0, 0.0)
    return FrontEnd(request_s=work.request_s, token_s=work.token_s, workers=work.workers, wait_s=wait_s, line_s=line_s)
