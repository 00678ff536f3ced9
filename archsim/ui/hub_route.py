"""A model of the Hugging Face Hub by its id, where the page was started with `--hub`."""

from __future__ import annotations

from typing import cast

from flask import Flask, Response, jsonify, request

from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError
from archsim.base.input_file import read_input
from archsim.importers.hub import config_of
from archsim.spec.catalog import HUB_ID
from archsim.ui.choices import Choices
from archsim.ui.uploads import LARGEST_TEXT, Uploads
from archsim.ui.uploads_route import opened, sentence_of

HUB = "/hub"


def connect_hub(server: Flask, choices: Choices, uploads: Uploads) -> None:
    """Take ids at `/hub`; what comes back is treated as an upload."""

    @server.post(HUB)
    def fetch() -> tuple[Response, int]:
        asked: object = request.get_json(silent=True)
        name = str(cast("dict[str, object]", asked).get("id", "")).strip() if isinstance(asked, dict) else ""
        if HUB_ID.fullmatch(name) is None:
            return jsonify(message=f"{quote(name)} is not a Hub id: ids read `org/name`"), 200
        try:
            data = read_input(config_of(name), LARGEST_TEXT)
        except ArchsimError as error:
            return jsonify(message=sentence_of(error)), 200
        found, message = opened(data, f"{name.partition('/')[2]}.json", choices)
        if found is None:
            return jsonify(message=message), 200
        uploads.add(found)
        return jsonify(key=found.key, label=f"{found.model.name} (Hub)", message=message), 200
