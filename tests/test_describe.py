"""Configurations of model families as rows: what their code makes of the fields.

`data/published.jsonl` has the fields of published configurations, with what was read from the code
of each family: the kinds of its layers, in lines.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from headers import header
from matplotlib import pyplot

import sparsity
from sparsity import (
    Chunk,
    FloorLog,
    InputError,
    LongRope,
    NeedleAbove,
    QKNorm,
    Row,
    Window,
    Yarn,
    describe,
    exact,
)
from sparsity.attention.configuration import LayerKind, kinds_of
from sparsity.attention.describe import ASSUMED, GAMMA_OF_SMOLLM2, UNIT
from sparsity.attention.families import BY_TYPE, passed_over
from sparsity.attention.fields import FIELDS
from sparsity.attention.library import library
from sparsity.attention.sources import MAX_BYTES, read_model

LINES = (Path(__file__).parent / "data" / "published.jsonl").read_text("utf-8").splitlines()
PUBLISHED = {each["name"]: each for each in map(json.loads, LINES)}
CLASSES = [name for name, each in PUBLISHED.items() if "config" in each]
REFUSED = [name for name, each in PUBLISHED.items() if "refused" in each]
HEADERS = [name for name, each in PUBLISHED.items() if "gguf" in each]
LLAMA4 = PUBLISHED["llama-4-scout"]["config"]
SMALL = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512,
         "max_position_embeddings": 8192}  # fmt: skip


@pytest.fixture
def alone(monkeypatch):
    """As where `transformers` is not installed."""
    monkeypatch.setitem(sys.modules, "transformers", None)


def write_header(folder, name):
    path = folder / "model.gguf"
    path.write_bytes(header(PUBLISHED[name]["gguf"], PUBLISHED[name]["tensors"]))
    return path


def line(kind):
    """A kind of layer in a line, as the data have it."""
    parts = [f"{len(kind.layers)} {kind.title}"]
    if kind.has_law:
        rope = kind.rotation
        said = "no RoPE"
        if rope is not None:
            said = f"base {rope.base:g}, {rope.turned} turn"
            said += f", {rope.scaling!r}" * bool(rope.scaling) + ", a table" * rope.table
        parts += [f"d {kind.head_dim}", f"scale {kind.scale:.6g}", said, *map(repr, kind.steps)]
    return "; ".join([*parts, *["QK-norm"] * kind.qk_norm])


def check_published(name, source):
    found = kinds_of(read_model(source))
    assert [line(kind) for kind in found] == PUBLISHED[name]["kinds"]
    said = [x for kind in found for x in (*kind.notes, *[kind.lawless] * bool(kind.lawless))]
    assert list(dict.fromkeys(said)) == PUBLISHED[name]["notes"]
    layers = sorted(layer for kind in found for layer in kind.layers)
    assert layers == list(range(len(layers)))


@pytest.mark.model
@pytest.mark.parametrize("name", CLASSES)
def test_what_the_class_of_a_family_makes_of_a_file(name, capfd):
    check_published(name, PUBLISHED[name]["config"])
    assert capfd.readouterr() == ("", "")  # the library says nothing


@pytest.mark.parametrize("name", HEADERS)
def test_the_header_of_a_gguf_file(name, tmp_path):
    check_published(name, write_header(tmp_path, name))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", CLASSES)
def test_without_the_classes_there_is_no_law(name):
    found = describe(PUBLISHED[name]["config"], lengths=(64,))
    assert np.isnan(found.n_eff).all()
    assert found.rows == (None,) * len(found.kinds)
    said = repr(found)
    assert "no n_eff: the file alone is not the configuration: pip install" in said
    assert "read: num_hidden_layers = " in said
    with pytest.raises(InputError, match="no law of its rows"):
        found.named_rows()


@pytest.mark.model
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_law_is_refused(name):
    with pytest.raises(InputError, match=PUBLISHED[name]["refused"]):
        describe(PUBLISHED[name]["fields"])


@pytest.mark.model
def test_sizes_of_heads_count_where_the_code_of_a_class_reads_them():
    """Held against the text of each class: another release may read them elsewhere."""
    codes: dict[str, str] = {}
    for file in Path(library("transformers").__file__).parent.glob("models/*/modeling_*.py"):
        code = file.read_text("utf-8")
        codes |= dict.fromkeys(re.findall(r"^class (\w+)", code, re.M), code)
    models = library("transformers.models.auto.modeling_auto").MODEL_MAPPING_NAMES
    checked = 0
    for kind in {*BY_TYPE} & {*models} - {"kimi_linear", "zamba"}:  # their sizes have other names
        family, model = BY_TYPE[kind], models[kind]
        if family.attends and not (family.latent or family.weights):
            code = codes[model if isinstance(model, str) else model[0]]
            size = "partial_rotary_factor" if family.positions == "RoPE" else "head_dim"
            reads = f'"{size}"' in code
            assert reads == (size not in passed_over(kind)), kind
            checked += 1
    assert checked > 100


@pytest.mark.model
def test_a_class_whose_usual_form_refuses_or_has_kinds_of_its_own_is_read():
    library = pytest.importorskip("transformers")
    for name in ("embedding_gemma2", "dots3_note_text"):  # of no record
        if name in library.CONFIG_MAPPING:
            fields = library.CONFIG_MAPPING[name]().to_dict()
            assert "is not known here" in read_model({**fields, "model_type": name}).lawless


@pytest.mark.model
def test_n_eff_of_the_rows(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA4))
    for source in (LLAMA4, tmp_path, str(tmp_path / "config.json")):
        found = describe(source, gamma=3.0, lengths=(8192, 131072))
        np.testing.assert_allclose(found.n_eff[1], [28.26, 39.21], rtol=1e-3)
        sphere = Row("exp", gamma=3.0, scores=QKNorm(128))  # what it normalises
        assert float(found.n_eff[0, 0]) == float(exact(sphere, length=8192))
        assert found.rows[0] == Row("exp", gamma=3.0, scores=QKNorm(128), steps=(Chunk(8192),))
        assert found.rows[1] == Row("exp", gamma=3.0, steps=(FloorLog(0.1, 8192, 1),))
        np.testing.assert_array_equal(found.ladder[:, 1], found.n_eff)  # γ = 3
    usual = describe(LLAMA4)
    assert usual.gamma == pytest.approx((1.0, 2.9), rel=1e-15)
    assert usual.origins == (UNIT, ASSUMED)
    assert usual.lengths == (4096, 32768, 131072, 1048576, 10485760)  # the last is its own
    assert list(found.to_dataframe()["count"]) == [36, 12]
    for said in (repr(found), found._repr_html_()):
        assert "chunked attention, chunks of 8192" in said
    own = json.loads(json.dumps(found.as_json()))
    assert own["context"] == 10485760
    assert own["kinds"][1]["row"]["steps"] == ["floor-log:0.1"]
    assert describe(PUBLISHED["vit-base"]["config"]).lengths == (197,)


def test_a_measured_gamma_has_the_constant_temperatures(tmp_path):
    found = describe(write_header(tmp_path, "deepseek2-lite.gguf"), lengths=(4096,))
    (kind,) = found.kinds
    factor = Yarn(40.0, 0.0707).factor(1)
    assert kind.temperature == pytest.approx(factor, rel=1e-7)
    assert found.gamma[0] == pytest.approx(GAMMA_OF_SMOLLM2 / factor, rel=1e-7)
    plain = float(exact("exp", gamma=GAMMA_OF_SMOLLM2, length=4096))
    assert found.n_eff[0, 0] == pytest.approx(plain, rel=1e-9)
    assert "it contains 1.59 of RoPE's scaling" in repr(found)
    indexed = LayerKind("", (0,), 64, 0.125, (LongRope(32.0, 4096),), top_k=8)
    assert indexed.row(2.0) == Row("topk:8", gamma=2.0 * indexed.temperature)


def test_errors(tmp_path):
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    own = {"model_type": "llama", **SMALL}
    for make, match in (
        (lambda: describe(tmp_path / "none.json"), "no such file"),
        (lambda: describe(tmp_path / "no.json"), "holds no configuration"),
        (lambda: describe(tmp_path / "list.json"), "holds no configuration"),
        (lambda: describe({"model_type": "llama"}), "config has no num_hidden_layers"),
        (lambda: describe({**own, "num_hidden_layers": "x"}), "num_hidden_layers = x"),
        (lambda: describe({**own, "sliding_window": 5.7}), "sliding_window = 5.7"),
        (lambda: describe({**own, "layer_types": ["full_attention"]}), "all 4 layers|refuses"),
        (lambda: describe(own, gamma=-1.0), "gamma"),
        (lambda: describe(own, lengths=(0,)), "length"),
    ):
        with pytest.raises(InputError, match=match):
            make()


@pytest.mark.thorough
def test_rows_are_drawn_by_name(tmp_path, command):
    """n_eff of each kind, and a needle that windows see and caps bend."""
    path = write_header(tmp_path, "gemma2-27b.gguf")
    found = describe(path, gamma=3.0)
    titles = list(found.named_rows())
    assert len(titles) == 2
    axes = sparsity.plot(found, length=[64, 8192])
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][:2] == titles
    drawn = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    for row in found.named_rows().values():
        wanted = [float(exact(row, length=n).value) for n in (64, 8192)]
        assert any(y.shape == (2,) and np.allclose(y, wanted, rtol=1e-12) for y in drawn)
    pyplot.close(axes.figure)
    needle = NeedleAbove(12.0, 0.0, 0)
    capped, _ = found.named_rows(needle).values()
    typed = Row("exp(50*tanh(s/50))", beta=0.0, gamma=3.0, steps=(needle, Window(4096)))
    own, by_hand = (exact(row, length=8192, of="needle_signal").value for row in (capped, typed))
    assert float(own) == pytest.approx(float(by_hand), rel=1e-10)
    out = tmp_path / "drawn.svg"
    typed_in = ["describe", path, "--gamma", 3, "--lengths", 64]
    code, said, err = command(*typed_in, "--needle", 12, "--out", out)
    assert (code, err) == (0, "")
    assert f"{out}, {out.with_suffix('.csv')}: gemma2: " in said
    assert "gemma2: " in out.read_text()
    assert (tmp_path / "drawn.csv").read_text().startswith("series,x,theory")
    for bad, says in ((["--needle", 12], "give --out"), (["--out", "x.txt"], ".svg, .png or .pdf"),
                      (["--out", out, "--of", "sink_mass"], "no sink")):  # fmt: skip
        code, _, err = command(*typed_in, *bad)
        assert code == 2
        assert says in err


# What no field may be, and what some may: numbers out of all bounds, other types, escapes, floods.
HOSTILE = [
    10**400, -(10**400), 10**5000, float("nan"), float("inf"), 1e308, 10**12, -1, 0, 5, 5.7, True,
    False, None, "", "false", "\x1b[31m" + "a" * 10**5, [], {}, [1], ["\x1b"], {"a": 1}, [None],
    [[["a", 10**12]]], {"full_attention": 5}, [f"k{i}" for i in range(2000)],
    {"rope_type": "longrope", "factor": -1}, {"rope_type": "yarn"}, ["full_attention"] * 4, -0.0,
    "yarn", [-1], [[]], b"x", 2**63, 1e-300, {"full_attention": {"rope_theta": 10**400}},
]  # fmt: skip


def hostile_configurations():
    types = ("llama", "gemma3_text", "llama4_text", "deepseek_v3", "mpt", "gpt_neo", "brand_new")
    for i, name in enumerate(FIELDS):
        own = {**SMALL, "model_type": types[i % len(types)]}
        rope = {"rope_type": "yarn", "factor": 2.0}
        for j, value in enumerate(HOSTILE):
            yield (
                {**own, name: value},
                {**own, "rope_scaling": {**rope, name: value}},
                {"model_type": "gemma3", "text_config": {**own, name: value}},
            )[(i + j) % 3]


def check_hostile(configurations):
    for count, config in enumerate(configurations, 1):  # noqa: B007  the last is returned
        try:
            said = repr(describe(config, gamma=2.0, lengths=(64,)))
        except InputError as error:
            said = str(error)
            assert "\n" not in said
        assert len(said) < 10_000
        assert said.replace("\n", "").isprintable()
    return count


@pytest.mark.usefixtures("alone")
def test_hostile_fields_are_refused_in_a_line():
    assert check_hostile(hostile_configurations()) >= 4000


@pytest.mark.model
@pytest.mark.thorough
def test_hostile_fields_reach_no_class():
    every = list(hostile_configurations())
    assert check_hostile(every[:: len(every) // 1000]) >= 1000


def crafted_files():
    """Name and bytes of files that are no configuration, or a bad one."""
    good = header(PUBLISHED["gemma3-4b.gguf"]["gguf"])
    yield from ((f"cut at {n}.gguf", good[:n]) for n in range(0, len(good), len(good) // 40))
    huge = (2**64 - 1).to_bytes(8, "little")
    for place in (8, 16, 24):  # tensors, fields, the length of the first name
        yield f"huge at {place}.gguf", good[:place] + huge + good[place + 8 :]
    listed = {"general.architecture": "llama", "llama.block_count": [7]}
    own = header(listed)
    yield "a list of 2^64.gguf", own[:-12] + huge + own[-4:]
    nested = (9).to_bytes(4, "little") + (1).to_bytes(8, "little")
    yield "lists in lists.gguf", own[:-16] + nested * 20000
    for value in (10**6, 0, -1.0, "many", True, float("nan")):
        wrong = {"general.architecture": "llama", "llama.block_count": value}
        yield f"layers {value}.gguf", header(wrong)
        wrong |= {"llama.block_count": 4, "llama.attention.head_count": value}
        yield f"heads {value}.gguf", header(wrong)
    yield "no architecture.gguf", header({"a": 1})
    yield "escape.gguf", header({"general.architecture": "\x1b[31m", "\x1b[31m.block_count": 2})
    many = {str(i): True for i in range(2**16)}
    yield "many fields.gguf", header(PUBLISHED["gemma3-4b.gguf"]["gguf"] | many)
    yield "long.gguf", header({"general.architecture": "a" * 10**6})
    yield "binary.json", bytes(range(256)) * 100
    yield "deep.json", b"[" * 10**5
    yield "digits.json", b'{"num_hidden_layers": ' + b"9" * 10**5 + b"}"
    yield "large.json", b" " * (MAX_BYTES + 1)
    yield "null.json", b"null"
    yield "no layers.json", b'{"model_type": "llama"}'
    yield "escape.json", b'{"model_type": "\\u001b[31m", "num_hidden_layers": 2}'
    yield "part.json", b'{"model_type": "llama", "text_config": 5}'
    deep = b'{"text_config": ' * 9 + b"{}" + b"}" * 9
    yield "groups in groups.json", b'{"num_hidden_layers": 2, "text_config": ' + deep + b"}"
    kinds = ", ".join(f'"k{i}"' for i in range(2000)).encode()
    yield "kinds.json", b'{"num_hidden_layers": 2000, "layer_types": [' + kinds + b"]}"
    yield "layers.json", b'{"model_type": "llama", "num_hidden_layers": 1000000000000}'


@pytest.mark.usefixtures("alone")
def test_crafted_files_are_refused_in_a_line(tmp_path, command):
    files = dict(crafted_files())
    assert len(files) >= 60
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        code, out, err = command("describe", path)
        assert (code, out, err.count("\n"), err[:-1].isprintable()) == (2, "", 1, True), name
