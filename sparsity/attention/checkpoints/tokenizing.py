"""A tokenizer at work in a process of its own; `tokens.Tokenizer` starts it and asks.

A tokenizer.json is a program: its rules can grow a text without end, or take hours to find where it
is to be cut, and the library ends the whole process where memory ends. Here that costs only this
process, which has so much memory and time for each question as an honest tokenizer needs.

The process is given a file, or "-" for one line of JSON on stdin, and then a line for each
question: a text, of which it says the ids, or a list of ids, of which it says the words. It answers
with a line each, or ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None

# The library takes 10 bytes and 50 ns for each byte of a tokenizer with 260,000 tokens, and
# 310 bytes and 2 µs for each byte of a text that it cuts into single letters.
_LOADED, _CUT = (16, 0.2e-6), (512, 10e-6)  # bytes and seconds
_SPARE = 2**28, 2.0


def _allow(size: int, each: tuple[int, float]) -> None:
    """Let this process have what a question of so many bytes needs, and no more."""
    if resource is None:
        return
    spent = resource.getrusage(resource.RUSAGE_SELF)
    used = spent.ru_utime + spent.ru_stime
    held = spent.ru_maxrss * 1024
    for kind, most in (
        (resource.RLIMIT_AS, held + _SPARE[0] + each[0] * size),
        (resource.RLIMIT_CPU, int(used + _SPARE[1] + each[1] * size) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard < 0 else min(int(most), hard), hard))


def main(source: str) -> None:
    """Answer until nothing is asked any more."""
    import tokenizers

    if source == "-":
        content = sys.stdin.buffer.readline()
    else:
        with open(source, "rb") as file:
            content = file.read()
    _allow(len(content), _LOADED)
    own: Any = tokenizers.Tokenizer.from_buffer(content)
    own.no_padding()
    own.no_truncation()
    found: Any = {"dropout": getattr(own.model, "dropout", None)}
    del content
    while True:
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            return
        _allow(len(line), _CUT)
        asked = json.loads(line)
        if isinstance(asked, str):
            found = own.encode(asked, add_special_tokens=False).ids
        else:
            found = [own.id_to_token(i) or "" for i in asked]


if __name__ == "__main__":
    main(sys.argv[1])
