"""Where the page sends the bytes of a file that a visitor picked."""

from __future__ import annotations

from urllib.parse import unquote

from flask import Flask, Response, jsonify, request

from archsim.base.errors import ArchsimError
from archsim.ui.choices import Choices
from archsim.ui.guard import UPLOAD
from archsim.ui.uploads import LARGEST, Upload, Uploads, file_label, read_upload

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
    """The upload in some bytes, or None; and a sentence about it that names the file."""
    try:
        found = read_upload(data, name, choices)
    except ArchsimError as error:
        problem, label = sentence_of(error), file_label(name)
        return None, problem if label in problem else f"{label}: {problem}"[:600]
    except (RecursionError, MemoryError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return None, f"{file_label(name)}: this file could not be read as a model"
    return found, f"{found.label}: {found.model.n_layers:,} layers"


def sentence_of(error: ArchsimError) -> str:
    """An error in one paragraph."""
    place = f" (line {error.span.line})" if error.span is not None else ""
    label = f": {error.label}" if error.label else ""
    return "; ".join([f"{error.message}{label}{place}", *error.hints[:2]])[:600]
