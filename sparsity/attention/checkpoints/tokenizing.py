"""The program of the process in which a tokenizer works; `tokens.Tokenizer` starts and asks it.

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

# Memory in bytes and time in seconds for each byte of a tokenizer and of a text. The library takes
# 10 bytes and 50 ns for each byte of a tokenizer with 260,000 tokens, and 310 bytes and 2 µs for
# each byte of a text that it cuts into single letters; the rest is slack.
_PER_BYTE_LOADED, _PER_BYTE_CUT = (16, 0.2e-6), (512, 10e-6)
_SPARE = 2**28, 2.0  # added to what any question may take


def _limit_resources(size: int, each: tuple[int, float]) -> None:
    """Limit this process to what a question of so many bytes needs, on top of what it has used.

    Limits of a process are absolute, of memory held and of CPU time since its start. Core files are
    off: running into a limit is expected, and none of the user's business.
    """
    if resource is None:
        return
    spent = resource.getrusage(resource.RUSAGE_SELF)
    used = spent.ru_utime + spent.ru_stime
    held = spent.ru_maxrss * 1024  # kilobytes on Linux
    for kind, most in (
        (resource.RLIMIT_AS, held + _SPARE[0] + each[0] * size),
        (resource.RLIMIT_CPU, int(used + _SPARE[1] + each[1] * size) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard < 0 else min(int(most), hard), hard))


def main(source: str) -> None:
    """Load the tokenizer and answer questions until stdin ends."""
    import tokenizers

    if source == "-":
        content = sys.stdin.buffer.readline()
    else:
        with open(source, "rb") as file:
            content = file.read()
    _limit_resources(len(content), _PER_BYTE_LOADED)
    own: Any = tokenizers.Tokenizer.from_buffer(content)
    # A tokenizer.json may ask for either, which would add tokens to a text or drop some.
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
        _limit_resources(len(line), _PER_BYTE_CUT)
        asked = json.loads(line)
        if isinstance(asked, str):
            found = own.encode(asked, add_special_tokens=False).ids
        else:
            found = [own.id_to_token(i) or "" for i in asked]


if __name__ == "__main__":
    main(sys.argv[1])
