"""Where the page sends the bytes of a file that a visitor picked."""

from __future__ import annotations

from urllib.parse import unquote

from flask import Flask, Response, jsonify, request

from archsim.base.errors import ArchsimError
from archsim.ui.choices import Choices
from archsim.ui.guard import UPLOAD
from archsim.ui.uploads import LARGEST, Upload, Uploads, read_upload

BINARY = "application/octet-stream"
"""The one type of content that is taken: a page of another origin cannot send it unasked."""


def connect_uploads(server: Flask, choices: Choices, uploads: Uploads) -> None:
    """Take uploads at `/upload`."""

    @server.post(UPLOAD)
    def upload() -> tuple[Response, int]:
        if request.content_type != BINARY:
            return jsonify(message=f"an upload is sent as {BINARY}"), 415
        size = request.content_length
        if size is None or size > LARGEST:
            return jsonify(message=f"at most {LARGEST:,} bytes are read"), 413
        name = unquote(request.headers.get("X-File-Name", "")[:1000], errors="replace")
        found, message = opened(request.get_data(cache=False), name, choices)
        if found is None:
            return jsonify(message=message), 422
        uploads.add(found)
        return jsonify(key=found.key, label=f"{found.model.name} (uploaded)", message=message), 200


def opened(data: bytes, name: str, choices: Choices) -> tuple[Upload | None, str]:
    """The upload in some bytes, or None and what is wrong with them."""
    try:
        found = read_upload(data, name, choices)
    except ArchsimError as error:
        return None, sentence_of(error)
    except (RecursionError, MemoryError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return None, "this file could not be read as a model"
    return found, f"{found.label}: {found.model.n_layers:,} layers"


def sentence_of(error: ArchsimError) -> str:
    """An error in one paragraph."""
    place = f" (line {error.span.line})" if error.span is not None else ""
    label = f": {error.label}" if error.label else ""
    return "; ".join([f"{error.message}{label}{place}", *error.hints[:2]])[:600]
