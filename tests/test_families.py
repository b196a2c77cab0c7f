"""Families of `transformers`, tiny and random: measured as their own weights are, or refused."""

from collections import Counter

import families
import pytest

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

# One of each kind: windows, encoders, latent, differential and sparse attention, mixtures, hybrids
# with state-space, linear and convolutional layers, biases, soft caps, learned sinks, attention of
# their own, layers that share a module, a text model with another main input; and those that are
# refused, with one of each kind of way out.
SOME = [
    "albert", "bailing_hybrid", "bamba", "bigbird_pegasus", "bloom", "bros", "clip_text_model",
    "cpmant", "ctrl", "deberta-v2", "deepseek_v3", "deepseek_v32", "diffllama", "falcon", "fnet",
    "fsmt", "funnel", "gemma2", "git", "gpt_neo", "gpt_oss", "layoutlm", "led", "lfm2", "llava",
    "longt5", "lxmert", "mamba", "mimo_v2_flash", "minimax", "mixtral", "modernbert", "mpt", "mra",
    "pegasus_x", "qwen3_next", "reformer", "rwkv", "sam3_lite_text_text_model", "speech_to_text",
    "splinter", "squeezebert", "t5", "t5gemma", "xlm-roberta", "xlnet", "zamba",
]  # fmt: skip
REFUSED = [
    "bros", "cpmant", "fnet", "fsmt", "funnel", "led", "longt5", "lxmert", "mamba", "mra",
    "pegasus_x", "reformer", "rwkv", "speech_to_text", "squeezebert", "t5", "t5gemma",
]  # fmt: skip


def told(chosen, implementation):
    """(verdicts by family, ways out by family) of models that can be built."""
    verdicts, ways = {}, {}
    for name, model, ids in families.models(chosen, implementation):
        verdict, why = families.judge(name, model, ids)
        if verdict == "not built":
            continue
        verdicts[name] = verdict, why
        if verdict == "refused":
            ways[name] = families.way_out(name, model, ids, why)
    return verdicts, ways


def test_some_families_are_measured_as_their_own_weights_are_or_refused():
    verdicts, ways = told(SOME, "eager")
    counts = Counter(verdict for verdict, _ in verdicts.values())
    assert counts == {"equal": 30, "refused": 17}, verdicts
    assert sorted(ways) == REFUSED
    assert all(way.startswith(("works", "none")) for way in ways.values()), ways


@pytest.mark.parametrize("chosen", [["bert", "gemma2", "gpt_neo", "gpt_oss", "llama", "mpt"]])
def test_the_attention_of_the_library_is_measured_alike(chosen):
    verdicts, _ = told(chosen, "sdpa")
    assert {verdict for verdict, _ in verdicts.values()} == {"equal"}, verdicts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementation", "least"), [("eager", 200), ("sdpa", 165)]
)  # all that have it
def test_every_family_is_measured_as_its_own_weights_are_or_refused(implementation, least):
    verdicts, ways = told(None, implementation)
    counts = Counter(verdict for verdict, _ in verdicts.values())
    assert set(counts) <= {"equal", "refused"}, verdicts
    assert counts["equal"] >= least, verdicts
    assert all(way.startswith(("works", "none")) for way in ways.values()), ways
    assert counts.total() > least + 5
