"""`archsim ui`."""

from __future__ import annotations

from typing import Annotated

import typer

from archsim.cli import output

Port = Annotated[
    int, typer.Option(min=0, max=65535, metavar="N", help="Where the page is served; 0 for any free port.")
]
Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="The address to serve on. Another than this machine's needs --public.")
]


def ui(
    port: Port = 8050,
    host: Host = "127.0.0.1",
    hub: Annotated[
        bool, typer.Option("--hub", help="Let the page fetch a config.json of the Hugging Face Hub by its id.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="For anybody: the catalog alone, no Hub, limits on each visitor.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="NAME", help="Host name of a public page.")
    ] = None,
    proxies: Annotated[
        int, typer.Option(min=0, max=8, metavar="N", help="Number of proxies in front of a public page.")
    ] = 0,
) -> None:
    """A page in the browser: pick a model, a device and a load, and see memory and speed while you drag.

    It is served on this machine alone, until Ctrl-C. Files are read only where you upload them.
    """
    from archsim.ui.start import start

    start(
        port=port, host=host, hub=hub, public=public, hosts=tuple(allow_host or ()), proxies=proxies,
        say=lambda url: output.emit(f"archsim ui: {url} (Ctrl-C ends it)\n"),
    )  # fmt: skip
