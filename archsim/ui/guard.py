"""What every request must pass: who asks, how much, how often; and what the browser may do with the answer."""

from __future__ import annotations

import os
import time
import traceback
from collections import OrderedDict
from threading import BoundedSemaphore, Lock
from urllib.parse import urlsplit

from dash import Dash
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

LARGEST_REQUEST = 64 * 2**10
"""Bytes of a request at most, uploads aside."""
UPLOAD = "/upload"
ANY_PATH = "/<path:path>"
"""Dash's rule for paths that nothing else answers: it would give the page for all of them."""

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Bucket:
    """Tokens of each visitor: one is spent by a request, `rate` a second come back, `burst` are kept at most."""

    def __init__(self, rate: float, burst: float, most: int = 10_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, visitor: str, now: float | None = None) -> float:
        """0 where a token was left, else the seconds until there is one."""
        now = time.monotonic() if now is None else now
        with self._lock:
            level, last = self._levels.pop(visitor, (self._burst, now))
            level = min(self._burst, level + (now - last) * self._rate)
            wait = 0.0 if level >= 1 else (1 - level) / self._rate
            self._levels[visitor] = (level if wait else level - 1, now)
            while len(self._levels) > self._most:
                self._levels.popitem(last=False)
        return wait


def guard(app: Dash, *, public: bool, hosts: tuple[str, ...] = ()) -> None:
    """Put the checks in front of an application. public: with limits on how often a visitor may ask."""
    server: Flask = app.server
    server.config["MAX_CONTENT_LENGTH"] = None
    known = LOCAL_NAMES | {host.lower() for host in hosts}
    _check_request(server, known if not public or hosts else frozenset())
    _say_defects(server)
    if public:
        _limit(server)
    policy = policy_of(app)

    @server.after_request
    def harden(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        if not public:
            response.headers["X-Frame-Options"] = "DENY"
        return response


def policy_of(app: Dash) -> str:
    """The content security policy: everything from this server alone."""
    hashes = " ".join(f"'{one.strip(chr(39))}'" for one in app.csp_hashes())
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-src 'none'; object-src 'none'"
    )


def _refusal(code: int, text: str) -> Response:
    return Response(text + "\n", code, mimetype="text/plain")


def _check_request(server: Flask, known: frozenset[str]) -> None:
    """Refuse other names of this machine (DNS rebinding) and other pages' requests, where names are known; unknown
    paths and large bodies always.
    """

    @server.before_request
    def check() -> Response | None:
        name = _host_name(request.host)
        if known and name not in known:
            return _refusal(421, f"this server does not answer for {name[:80]!r}")
        if known and not _is_own_page(request.headers.get("Origin"), known):
            return _refusal(403, "requests from other pages are refused")
        if request.method not in ("GET", "HEAD", "POST"):
            return _refusal(405, "only GET and POST")
        if request.url_rule is None or request.url_rule.rule == ANY_PATH:
            return _refusal(404, "no such page")
        if request.path != UPLOAD and (request.content_length or 0) > LARGEST_REQUEST:
            return _refusal(413, f"more than {LARGEST_REQUEST:,} bytes")
        return None


def _say_defects(server: Flask) -> None:
    """What a request breaks is answered in a line, without a traceback; `ARCHSIM_DEBUG=1` prints that."""

    @server.errorhandler(Exception)
    def failed(error: Exception) -> Response | HTTPException:
        if isinstance(error, HTTPException):
            return error
        if os.environ.get("ARCHSIM_DEBUG") == "1":
            traceback.print_exception(error)
        return _refusal(500, f"internal error: {type(error).__name__}")


def _is_own_page(origin: str | None, known: frozenset[str]) -> bool:
    """Whether a request comes from this server's page, by what the browser says. A local page has one port as well."""
    if origin is None:
        return True
    place = urlsplit(origin).netloc.lower()
    name = _host_name(place)
    return place == request.host.lower() if name in LOCAL_NAMES else name in known


def _host_name(host: str) -> str:
    """The host without its port."""
    return host.lower().rpartition(":")[0] if ":" in host and not host.endswith("]") else host.lower()


UPDATES, UPLOADS = (8.0, 40.0), (0.2, 6.0)
"""Of one visitor: requests a second that are answered on average, and at once."""
COMPUTED, SLOW = ("/report.html", "/candidate/", "/drawing.svg"), (UPLOAD, "/report.html")
"""Files that are made when they are asked for, and what takes longest."""
AT_ONCE = 4
"""Answers that are computed at the same time."""


def _limit(server: Flask) -> None:
    """Refuse a visitor who asks too often, and everybody while the server has its hands full."""
    updates, slow, busy = Bucket(*UPDATES), Bucket(*UPLOADS), BoundedSemaphore(AT_ONCE)

    @server.before_request
    def limit() -> Response | None:
        if request.method != "POST" and not request.path.startswith(COMPUTED):
            return None
        bucket = slow if request.path in SLOW else updates
        wait = bucket.take(request.remote_addr or "")
        if not wait and busy.acquire(timeout=5):
            request.environ["archsim.busy"] = busy
            return None
        refused = _refusal(429 if wait else 503, "too many requests: try again in a moment")
        refused.headers["Retry-After"] = str(max(1, round(wait)))
        return refused

    @server.teardown_request
    def release(_error: BaseException | None) -> None:
        held = request.environ.pop("archsim.busy", None)
        if held is not None:
            held.release()
