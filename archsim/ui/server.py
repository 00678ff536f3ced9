"""The server of the page: a Dash application, guarded, on one address."""

from __future__ import annotations

from typing import Protocol

from dash import Dash

from archsim.base.data_class import dataclass
from archsim.ui.answers import Answers
from archsim.ui.callbacks import connect
from archsim.ui.choices import choices
from archsim.ui.drawings import connect_drawings
from archsim.ui.exports import connect_exports
from archsim.ui.guard import guard
from archsim.ui.hub_route import connect_hub
from archsim.ui.layout import answer_places, page_html
from archsim.ui.plotly_route import connect_plotly
from archsim.ui.uploads import Uploads
from archsim.ui.uploads_route import connect_uploads

LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """How the page is served. public: for anybody, with limits, and the catalog's own models alone. hub: config.json
    of the Hub by its id. hosts: names that the server is called by, besides those of this machine.
    """

    public: bool = False
    hub: bool = False
    hosts: tuple[str, ...] = ()


def make_app(site: Site) -> Dash:
    """The application, ready to be served."""
    names, answers = choices(built_in=site.public), Answers(Uploads(256 if site.public else 32))
    app = Dash(
        __name__, title="archsim", update_title="", serve_locally=True, enable_mcp=False, add_log_handler=False,
        suppress_callback_exceptions=False, meta_tags=META,
        index_string=page_html(names, public=site.public, hub=site.hub),
    )  # fmt: skip
    app.layout = answer_places
    connect(app, names, answers)
    connect_uploads(app.server, names, answers.uploads)
    connect_exports(app.server, names, answers)
    connect_drawings(app.server, names, answers)
    connect_plotly(app.server)
    if site.hub:
        connect_hub(app.server, names, answers.uploads)
    guard(app, public=site.public, hosts=site.hosts)
    return app


META = [
    {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    {"name": "description", "content": "What a transformer costs on an accelerator: memory, time, throughput."},
    {"name": "color-scheme", "content": "light dark"},
]


MOST_BODY = 34 * 2**20
"""Bytes of a request's body at most; nothing below is written to a file on its way."""


def make_server(app: Dash, host: str = LOCAL, port: int = 8050, proxies: int = 0) -> Server:
    """A server that listens already; `run` serves. proxies: in front of it, whose word for a visitor's address counts.

    Raises OSError for an address that cannot be used.
    """
    from waitress.server import create_server

    trusted = {"trusted_proxy": "*", "trusted_proxy_count": proxies, "trusted_proxy_headers": "x-forwarded-for"}
    made: Server = create_server(
        app.server, host=host, port=port, threads=4, ident=None, max_request_header_size=16_384,
        max_request_body_size=MOST_BODY, inbuf_overflow=MOST_BODY, outbuf_overflow=MOST_BODY, channel_timeout=30,
        connection_limit=200, clear_untrusted_proxy_headers=True,
        **(trusted if proxies else {}),
    )  # fmt: skip
    return made


class Server(Protocol):
    """What is used of a waitress server."""

    effective_port: int

    def run(self) -> None:
        """Serve until interrupted."""

    def close(self) -> None:
        """Free the port."""
