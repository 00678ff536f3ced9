"""plotly.js as plotly for Python brings it along, packed where the browser takes that."""

from __future__ import annotations

from functools import lru_cache
from gzip import compress

from flask import Flask, Response, request

from archsim.render.figures.plotlyjs import NAME, source_text

AGE = "public, max-age=31536000, immutable"


def connect_plotly(server: Flask) -> None:
    """Give out plotly.js; its version stands in its address."""

    @server.get(f"/{NAME}")
    def plotly() -> Response:
        packs = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {"Cache-Control": AGE, "Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if packs else {})}
        return Response(packed() if packs else source_text(), mimetype="text/javascript", headers=headers)


@lru_cache(maxsize=1)
def packed() -> bytes:
    """The file as most browsers take it; packing takes a third of a second."""
    return compress(source_text().encode(), 6)
