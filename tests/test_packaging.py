"""What is published with the package: its metadata and its data files."""

import re
import tomllib
from pathlib import Path

import pytest

import sparsity

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# The project has no address yet, so none is given; its sources are in docs/faq.md.
OWN = ("Documentation", "Changelog", "Source", "Issues")
SOURCES = ("kexue.fm", "arxiv.org")


def wrong(project):
    """What an index, or a reader of its page, would stumble on."""
    found = []
    kinds = project["classifiers"]
    if len(set(kinds)) != len(kinds) or any(kind.startswith("License") for kind in kinds):
        found.append("classifiers: one twice, or a licence beside the SPDX expression")
    if not re.fullmatch(r"[A-Za-z0-9.-]+", project["license"]):
        found.append("license: not an SPDX expression")
    if not any(kind.endswith(f":: {project['requires-python'][2:]}") for kind in kinds):
        found.append("classifiers: the least version of Python is not among them")
    for label, url in project.get("urls", {}).items():
        host = re.fullmatch(r"https://([^/]+)/.+", url)
        if host is None or host[1] in SOURCES or label not in OWN:
            found.append(f"urls: {label}")
    return found


def test_the_metadata_is_right():
    assert wrong(PROJECT) == []
    assert PROJECT["version"] == sparsity.__version__
    assert PROJECT["scripts"] == {"sparsity": "sparsity.cli:main"}


@pytest.mark.parametrize(
    "planted",
    [
        {"classifiers": [*PROJECT["classifiers"], "License :: OSI Approved :: MIT License"]},
        {"classifiers": [*PROJECT["classifiers"], PROJECT["classifiers"][0]]},
        {"license": "MIT License"},
        {"requires-python": ">=3.10"},
        {"urls": {"Article examined": "https://example.org/article"}},
        {"urls": {"Documentation": "https://arxiv.org/abs/1"}},
        {"urls": {"Changelog": "CHANGELOG.md"}},
    ],
)
def test_an_error_in_the_metadata_would_be_seen(planted):
    assert len(wrong(PROJECT | planted)) == 1


def test_the_files_that_the_package_reads_lie_in_it():
    package = Path(sparsity.__file__).parent
    for name in (
        "py.typed",
        "panel/front/panel.js",
        "panel/front/panel.css",
        "report/page.html",
        "report/style.css",
    ):
        assert (package / name).is_file()
