"""`archsim-hook`: one archsim command on each of several files, as pre-commit calls its hooks."""

from __future__ import annotations

import sys
from typing import NoReturn

from archsim.cli.main import main


def run() -> NoReturn:
    """`archsim-hook COMMAND [OPTION...] -- FILE...`; exits with the highest code of all files, 2 without `--`."""
    words = sys.argv[1:]
    if "--" not in words or not words[0].isidentifier():
        sys.stderr.write("archsim-hook COMMAND [OPTION...] -- FILE...: end the hook's `args` with `--`\n")
        sys.exit(2)
    end = words.index("--")
    command, options, files = words[0], words[1:end], words[end + 1 :]
    sys.exit(max((main([command, *options, "--", file]) for file in files), default=0))
