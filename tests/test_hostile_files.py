"""Models, texts, scores and records that lie: one line and exit 2, or what is right."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import hostile_files
import pytest
from hostile_files import Found

KINDS = {  # of variants, and how many there are at least
    "gguf": 400, "model.safetensors": 100, "config.json": 200, "tokenizer.json": 60, "index": 30,
    "folder": 15, "npy text": 55, "npy scores": 55, "text": 12, "record": 100,
}  # fmt: skip


def read_alike(found):
    """Variants that were read otherwise than the first of their kind: other numbers."""
    first, other = {}, []
    for each in found:
        kind = each.name.split("/")[0]
        if each.outcome != "read" or kind == "record":
            continue
        kind = kind if kind.startswith("npy") else "model"  # all of them are one, on one text
        lines = [x for x in each.out.splitlines()[1:] if not x.startswith("Written")]
        lines = each.out.splitlines() if kind == "npy scores" else lines
        if lines != first.setdefault(kind, lines):
            other.append(each.name)
    return other


def test_what_is_wrong_with_an_answer_is_seen():
    line = "sparsity: model = x: has sliding_window = 4; give another model"
    good = dict(name="a/b", outcome="refused", code=2, out="", err=line, seconds=1.0, peak=0)
    assert not Found(**good).faults()
    faulty = (
        {"code": 0}, {"code": 1}, {"code": "ValueError: x"}, {"outcome": "read"}, {"out": "said"},
        {"err": f"{line}\n{line}"}, {"err": ""}, {"err": "x" * 3000}, {"err": "\x1b[2J"},
        {"seconds": 6.0}, {"peak": 2**31}, {"err": "not enough memory"}, {"name": "a/unread b=4"},
    )  # fmt: skip
    for change in faulty:
        assert Found(**good | change).faults(), change
    read = Found(**good | {"outcome": "read", "out": "tiny: 1 text\n 1 2 3"})
    other = Found(**vars(read) | {"out": "tiny: 1 text\n 1 2 4", "name": "a/c"})
    assert read_alike([read, read, other]) == ["a/c"]


def test_some_files_that_lie_are_refused_in_one_line(tmp_path):
    """Every 24th, and the first of each kind."""
    tried, seen = [], Counter()
    for i, variant in enumerate(hostile_files.variants(tmp_path)):
        kind = variant.name.split("/")[0]
        if i == 0:
            hostile_files.run(variant)  # what is imported and compiled once is no file's
        if i % 24 == 0 or kind not in seen:
            tried.append(hostile_files.run(variant))
        seen[kind] += 1
    assert {x.name: x.faults() for x in tried if x.faults()} == {}
    assert read_alike(tried) == []
    assert len(tried) >= 60
    assert sum(x.outcome == "read" for x in tried) >= 5
    assert all(seen[kind] >= KINDS[kind] for kind in seen)


def tried_apart(pattern=""):
    """What came of all variants, in a process with 1 GiB more than it begins with."""
    first, tried = 0, []
    while True:
        done = subprocess.run(
            [sys.executable, hostile_files.__file__, str(first), pattern],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent)])},
            capture_output=True, text=True, timeout=3000, check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for line in lines:
            if "begun" not in line:
                line.pop("faults")
                tried.append(Found(**line))
        last = lines[-1] if lines else {}
        if "begun" not in last:
            assert done.returncode == 0, done.stderr
            return tried
        died = dict(outcome="refused", code="died", out="", err=done.stderr, seconds=0.0, peak=0)
        tried.append(Found(last["name"], **died))
        first = last["begun"] + 1


@pytest.mark.slow
def test_all_files_that_lie_are_refused_in_one_line():
    tried = tried_apart()
    assert {x.name: (x.code, x.faults()) for x in tried if x.code == "died" or x.faults()} == {}
    assert read_alike(tried) == []
    kinds = Counter(x.name.split("/")[0] for x in tried)
    assert kinds.keys() == KINDS.keys()
    assert all(kinds[kind] >= least for kind, least in KINDS.items()), kinds
    assert len(tried) >= 1300
    assert sum(x.code == 2 for x in tried) >= 1100


@pytest.mark.slow
def test_files_that_lie_are_refused_at_the_prompt(tmp_path):
    """Processes of their own, with a limit on their memory and time that the system keeps."""
    limited = "import resource, sys; r = resource; r.setrlimit(r.RLIMIT_CPU, (20, 20)); "
    limited += "r.setrlimit(r.RLIMIT_DATA, (3 << 29,) * 2); from sparsity import cli; cli.main()"
    tried = 0
    for i, variant in enumerate(hostile_files.variants(tmp_path)):
        if i % 50 or variant.outcome != "refused":
            continue
        done = subprocess.run(
            [sys.executable, "-c", limited, *variant.arguments],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, ""), (variant.name, done.stderr)
        assert len(done.stderr.splitlines()) == 1, (variant.name, done.stderr)
        tried += 1
    assert tried >= 18
