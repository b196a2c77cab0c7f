"""RoPE's scaling as files state it, GGUF and safetensors: the angles and the forward pass."""

import math

import mpmath
import numpy as np
import pytest
import tiny_model
from rope_reference import dynamic, linear, llama3, plain, yarn

from sparsity import InputError, describe
from sparsity import models as checkpoints
from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.checkpoints.llama import forward

DIM, BASE, CONTEXT = (
    tiny_model.SIZES["head_dim"],
    tiny_model.BASE,
    tiny_model.SIZES["context"],
)
IDS = np.random.default_rng(2).integers(0, tiny_model.SIZES["vocab"], 24)
GROWN = 1 + 0.1 * math.log(4)  # YaRN's factor at r = 4


def scaled(**settings):
    return {"rope_scaling": settings}


def llama3_table():
    """As llama.cpp's converter writes it, in 32 bits: plain angles over those of the rule."""
    stretched = llama3(DIM, BASE, None, 8, 64)
    ratios = [a / b for a, b in zip(plain(DIM, BASE), stretched, strict=True)]
    return np.array([float(x) for x in ratios], np.float32)


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LINEAR, YARN = ("scaling.type", "linear"), ("scaling.type", "yarn")
ORIGIN = ("scaling.original_context_length", 32)
OWN = {"original_max_position_embeddings": 32}
# The fields of config.json, those of GGUF, the reference with its numbers, the factor on q and k.
CASES = {
    "plain": ({}, (), None, (), 1.0),
    "linear": (
        scaled(type="linear", factor=4.0), (LINEAR, ("scaling.factor", 4.0)), linear, (4,), 1.0
    ),
    "linear, older names": (
        scaled(rope_type="linear", factor=2.5), (("scale_linear", 2.5),), linear, (2.5,), 1.0
    ),
    "yarn": (
        scaled(rope_type="yarn", factor=4.0, **OWN), (YARN, ("scaling.factor", 4.0), ORIGIN),
        yarn, (4, 32), GROWN,
    ),
    "yarn of the model's length": (
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": BASE}},
        (YARN, ("scaling.factor", 4.0)), yarn, (4, CONTEXT), GROWN,
    ),
    "yarn with a factor on q and k": (
        scaled(rope_type="yarn", factor=4.0, attention_factor=1.5 * GROWN, **OWN),
        (YARN, ("scaling.factor", 4.0), ORIGIN, ("scaling.attn_factor", 1.5)),
        yarn, (4, 32), 1.5 * GROWN,
    ),
    "yarn with mscale": (
        scaled(rope_type="yarn", factor=4.0, mscale=1.0, mscale_all_dim=0.5, **OWN),
        None, yarn, (4, 32), GROWN / (1 + 0.05 * math.log(4)),
    ),
    "yarn with other ends": (
        scaled(rope_type="yarn", factor=4.0, beta_fast=8, beta_slow=0.5, **OWN),
        None, yarn, (4, 32, 8, 0.5), GROWN,
    ),
    "dynamic": (
        scaled(rope_type="dynamic", factor=4.0) | {"max_position_embeddings": 16},
        None, dynamic, (4, 16), 1.0,
    ),
    "llama3": (
        scaled(rope_type="llama3", original_max_position_embeddings=64, **LLAMA3),
        "table", llama3, (8, 64), 1.0,
    ),
    "llama3, length outside": (
        scaled(rope_type="llama3", **LLAMA3) | {"original_max_position_embeddings": 64},
        None, llama3, (8, 64), 1.0,
    ),
}  # fmt: skip


def reference(name, length):
    """θ_i of a text of that length, and the factor on q and k."""
    _, _, rule, numbers, amplitude = CASES[name]
    with mpmath.workdps(40):
        found = plain(DIM, BASE) if rule is None else rule(DIM, BASE, length, *numbers)
    return np.array([float(x) for x in found]), amplitude


def opened(name, folder):
    """The checkpoints that state a case, by their kind."""
    fields, rope, *_ = CASES[name]
    folder.mkdir()
    found = {
        "safetensors": checkpoints.load(
            tiny_model.write_safetensors(folder, tiny_model.weights(), **fields)
        )
    }
    if rope is not None:
        table = [(("rope_freqs.weight", None), llama3_table())] if rope == "table" else []
        fields = () if rope == "table" else rope
        path = folder / "tiny.gguf"
        found["gguf"] = checkpoints.load(
            tiny_model.write_gguf(path, tiny_model.weights(), extra=table, rope=fields)
        )
    return found


def logits_of(model, ids=IDS):
    parts = []
    forward(model, [ids], lambda *seen: None, lambda text, first, x: parts.append(np.asarray(x)))
    return np.concatenate(parts)


def test_angles_are_those_of_the_rule_in_both_formats(tmp_path):
    tried, changed = 0, 0
    for i, name in enumerate(CASES):
        models = opened(name, tmp_path / str(i))
        for kind, model in models.items():
            for length in (8, 16, 24, 100):
                theta, amplitude = reference(name, length)
                if (name, kind) == ("llama3", "gguf"):  # its table has 32 bits
                    theta = np.array([float(x) for x in plain(DIM, BASE)]) / llama3_table()
                turning = model.config.rotation
                np.testing.assert_allclose(turning.angles(length), theta, rtol=1e-12)
                assert turning.amplitude == pytest.approx(amplitude, rel=1e-12)
                tried += 1
                changed += bool(np.max(np.abs(theta / reference("plain", 1)[0] - 1)) > 0.1)
        if len(models) == 2:
            a, b = (model.config.rotation.angles(24) for model in models.values())
            np.testing.assert_allclose(a, b, rtol=1e-7 if name == "llama3" else 1e-15)
    # Of 18 files two are plain, and dynamic scaling begins beyond 16 tokens.
    assert (tried, changed) == (18 * 4, 16 * 4 - 2)


@pytest.mark.parametrize("name", CASES)
def test_the_forward_pass_is_that_of_numpy(name, tmp_path):
    theta, amplitude = reference(name, len(IDS))
    _, wanted = tiny_model.forward(tiny_model.weights(), IDS, theta, amplitude)
    _, plain_angles = tiny_model.forward(tiny_model.weights(), IDS)
    for model in opened(name, tmp_path / "model").values():
        found = logits_of(model)
        assert np.abs(found - wanted).max() < 1e-4
        assert name == "plain" or np.abs(found - plain_angles).max() > 0.01
    if amplitude != 1:  # the factor left out, or on the scores in place of q and k, is seen
        for planted in (1.0, amplitude**0.5):
            _, other = tiny_model.forward(tiny_model.weights(), IDS, theta, planted)
            assert np.abs(wanted - other).max() > 0.01


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (scaled(rope_type="longrope", factor=4.0), "rope_type = longrope"),
        (scaled(rope_type="linear", factor=0.5), "RoPE's factor = 0.5"),
        (scaled(rope_type="linear", factor=2.0, beta_fast=8), "beta_fast = 8"),
        (scaled(rope_type="dynamic", factor=2.0, **OWN), "original_max_position_embeddings = 32"),
        (scaled(rope_type="yarn", factor=4.0, beta_fast=0.5), "RoPE's fast = 0.5"),
        (scaled(rope_type="yarn", factor=4.0, truncate=1), "truncate = 1"),
        (
            scaled(rope_type="yarn", factor=4.0, **OWN) | {"original_max_position_embeddings": 64},
            "say otherwise",
        ),
        (scaled(rope_type="linear", factor=2.0, partial_rotary_factor=0.5), "partial_rotary"),
    ],
)
def test_settings_that_are_not_run_are_refused_by_name(fields, says, tmp_path):
    path = tiny_model.write_safetensors(tmp_path, tiny_model.weights(), **fields)
    with pytest.raises(InputError, match=says):
        checkpoints.load(path)


@pytest.mark.parametrize(
    ("rope", "says"),
    [
        ((("scaling.type", "longrope"),), "rope.scaling.type = longrope"),
        ((("scaling.type", "none"), ("scaling.factor", 4.0)), "rope.scaling.factor = 4.0"),
        ((LINEAR, ("scaling.factor", 0.5)), "rope.scaling.factor = 0.5"),
        ((YARN, ("scaling.yarn_beta_fast", 8.0)), "yarn_beta_fast = 8"),
        ((YARN, ("scaling.yarn_log_multiplier", 0.1)), "yarn_log_multiplier = 0.1"),
        ((("dimension_count", 4),), "dimension_count = 4"),
        ((YARN, ("scaling.factor", 4.0), "table"), "it has rope_freqs.weight besides"),
    ],
)
def test_fields_that_are_not_run_are_refused_by_name(rope, says, tmp_path):
    table = [(("rope_freqs.weight", None), llama3_table())] if "table" in rope else []
    fields = [field for field in rope if field != "table"]
    path = tmp_path / "tiny.gguf"
    tiny_model.write_gguf(path, tiny_model.weights(), extra=table, rope=fields)
    with pytest.raises(InputError, match=says):
        checkpoints.load(path)


def test_describe_reads_the_same_rule_in_both_formats(tmp_path):
    for i, name in enumerate(("linear", "yarn", "yarn with a factor on q and k")):
        opened(name, tmp_path / str(i))
        one, other = (describe(tmp_path / str(i) / x) for x in ("config.json", "tiny.gguf"))
        assert one.kinds[0].rotation == other.kinds[0].rotation
        rotation = one.kinds[0].rotation
        assert rotation is not None
        assert rotation.scaling is not None
        assert one.rows == other.rows
    opened("llama3", tmp_path / "llama3")
    assert any("rope_freqs" in x for x in describe(tmp_path / "llama3" / "tiny.gguf").notes())


@pytest.mark.model
def test_angles_and_logits_are_those_of_transformers(tmp_path):
    """Its own functions for the angles, and its Llama on the same files; 32 bits throughout."""
    torch, hf = library("torch"), library("transformers")
    rules = hf.modeling_rope_utils.ROPE_INIT_FUNCTIONS
    tried, moved = 0, []
    for i, name in enumerate(CASES):
        model = opened(name, tmp_path / str(i))["safetensors"]
        theirs = hf.LlamaForCausalLM.from_pretrained(
            tmp_path / str(i), attn_implementation="eager", dtype=torch.float32
        ).eval()
        rule = theirs.config.rope_parameters["rope_type"]
        for length in (8, 24, 100) if rule != "default" else ():
            theta, amplitude = rules[rule](theirs.config, "cpu", seq_len=length)
            turning = model.config.rotation
            np.testing.assert_allclose(turning.angles(length), theta.numpy(), rtol=2e-6)
            assert turning.amplitude == pytest.approx(amplitude, rel=1e-6)
            tried += 1
        with torch.no_grad():
            wanted = theirs(torch.tensor(IDS)[None]).logits[0].numpy()
        assert np.abs(logits_of(model) - wanted).max() < 1e-4
        moved.append(wanted)
    assert (tried, len(moved)) == (10 * 3, 11)
    assert all(np.abs(x - moved[0]).max() > 0.01 for x in moved[1:])


@pytest.mark.model
def test_no_llama_of_transformers_turns_a_part_of_a_head(tmp_path):
    """Why such files are refused: one rule ignores the setting, and the others fail."""
    torch, hf = library("torch"), library("transformers")
    tiny_model.write_safetensors(tmp_path, tiny_model.weights())

    def logits(**fields):
        config = hf.LlamaConfig.from_pretrained(tmp_path, **fields)
        theirs = hf.LlamaForCausalLM.from_pretrained(tmp_path, config=config, dtype=torch.float32)
        with torch.no_grad():
            return theirs.eval()(torch.tensor(IDS)[None]).logits[0].numpy()

    part = {"rope_theta": BASE, "partial_rotary_factor": 0.5}
    np.testing.assert_array_equal(
        logits(rope_parameters={"rope_type": "default", **part}), logits()
    )
    with pytest.raises(RuntimeError, match="size of tensor"):
        logits(rope_parameters={"rope_type": "linear", "factor": 2.0, **part})
