"""From the command's options to a running server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from ipaddress import ip_address

from archsim.base.errors import UsageError

NEEDED = ("dash", "waitress")
"""Packages of the extra `ui`."""


def start(
    *, port: int, host: str, hub: bool, public: bool, hosts: tuple[str, ...], proxies: int, say: Callable[[str], None]
) -> None:
    """Serve the page until interrupted. say: is told the address once it is there.

    Raises UsageError for options that do not go together, without the extra, and for a port that is taken.
    """
    check_options(host=host, hub=hub, public=public, hosts=hosts, proxies=proxies)
    check_installed()
    from archsim.ui.choices import choices
    from archsim.ui.idle import collect_when_idle
    from archsim.ui.prepare import prepare
    from archsim.ui.server import Site, make_app, make_server

    app = make_app(Site(public=public, hub=hub, hosts=hosts))
    try:
        server = make_server(app, host, port, proxies)
    except OSError as error:
        hint = "`--port N` takes another one, `--port 0` any that is free"
        raise UsageError(
            f"port {port} of {host} cannot be used: {(error.strerror or '').lower()}", hints=(hint,)
        ) from None
    collect_when_idle(app.server)
    logging.getLogger("waitress").setLevel(logging.ERROR)  # not how many requests wait for a thread
    prepare(choices(built_in=public))
    say(f"http://{host}:{server.effective_port}")
    try:
        server.run()
    finally:
        server.close()


def check_options(*, host: str, hub: bool, public: bool, hosts: tuple[str, ...], proxies: int) -> None:
    """Raises UsageError for options that do not go together."""
    if public and hub:
        raise UsageError("`--hub` does not go with `--public`: visitors would make this machine fetch files")
    if not public and (hosts or proxies):
        raise UsageError("`--allow-host` and `--proxies` go with `--public`")
    if not public and not _is_this_machine(host):
        hint = "`--public` is for other machines: the catalog alone, with limits"
        raise UsageError(f"without `--public` the page is served on this machine alone, not on {host}", hints=(hint,))


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_installed() -> None:
    """Raises UsageError where the extra is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        hint = "`pip install 'archsim[ui]'`"
        raise UsageError(f"`archsim ui` needs {' and '.join(missing)}, of the extra `ui`", hints=(hint,))
