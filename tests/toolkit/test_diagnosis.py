"""A diagnosis names what was planted, and each of its numbers is that of an independent way to it."""

import copy
import dataclasses
import re
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.verdict import Metric, Quality
from quantwatch.measure.compare import Pair
from quantwatch.toolkit.capture import Inputs, capture
from quantwatch.toolkit.causes import causes, exchanged, output_errors
from quantwatch.toolkit.diagnosis import Cured, Diagnosis, Measured, Part, SetResult, Ward, best, diagnose, plans, probe
from quantwatch.toolkit.diagnosis_report import as_json, cure_rows, html, judged, sentences
from quantwatch.toolkit.fake_quant import absmax_codes
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.formats import Format, Variant
from quantwatch.toolkit.model import Loaded
from quantwatch.toolkit.quantize_study import quantized, size
from quantwatch.toolkit.salience import grouped
from quantwatch.toolkit.score import Exam, compared, distribution, divergence, exam
from quantwatch.toolkit.smoothing import smoothed
from support.stored import divergence as a_divergence
from support.stored import finding as a_finding
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, a_prompt, logits, some_ids

INT4 = Variant(Format.INT4, 64)
INT6 = Variant(Format.INT6, 64)
W8A8 = Variant(Format.W8A8)
ONE = [a_prompt("The quick brown fox"), a_prompt("SELECT name FROM users", 1), a_prompt("def add(a, b):", 2)]
OTHER = [a_prompt("seven wizards count", 3), a_prompt("return a + b", 4)]
TEXTS = [some_ids(60, seed=seed) for seed in (3, 4)]
BAD = 2


def quiet(_: str) -> object:
    return lambda _done, _all: None


def planted(model: nn.Module) -> nn.Module:
    """Layer BAD computes the same and cannot be rounded: one column in 16 is huge, and what it reads is tiny."""
    up, down = (model.get_submodule(f"model.layers.{BAD}.mlp.{name}_proj") for name in ("up", "down"))
    down.get_parameter("weight")[:, ::16] *= 64.0
    up.get_parameter("weight")[::16] /= 64.0
    return model


def outlying(model: nn.Module) -> nn.Module:
    """One channel behind the second norm of layer BAD is a thousand times too large, and its readers undo it."""
    group = next(one for one in groups(model) if one.names[0] == f"model.layers.{BAD}.mlp.gate_proj")
    group.gain[7] *= 1000.0
    for linear in group.linears:
        linear.weight[:, 7] /= 1000.0
    return model


def plain() -> nn.Module:
    return a_model(vocab_size=400, num_hidden_layers=4)


@cache
def asked() -> tuple[Exam, Exam]:
    at = Loaded(plain(), tiny_tokenizer())
    return exam(at, ONE, limit=24), exam(at, OTHER, limit=24)


def ward(model: nn.Module, *, limits: Scheme = Scheme.INT4) -> Ward:
    """What was planted changes no answer, so full precision is asked once."""
    held = limits_for(limits)
    parts = [
        Part(name, dataclasses.replace(one, baseline=_again(model, one)), held)
        for name, one in zip(("one", "other"), asked(), strict=True)
    ]
    return Ward(model, TEXTS, tuple(parts), quiet)  # type: ignore[arg-type]  # a hearer that hears nothing


def _again(model: nn.Module, one: Exam) -> dict[str, Distribution]:
    with torch.inference_mode():
        return {each.prompt_id: distribution(model, each, k=one.k) for each in one.sequences}


def test_what_was_planted_changes_no_function() -> None:
    before = logits(plain(), some_ids())
    for plant in (planted, outlying):
        torch.testing.assert_close(logits(plant(plain()), some_ids()), before, rtol=1e-3, atol=1e-4)


@cache
def found_planted() -> tuple[nn.Module, Diagnosis]:
    model = planted(plain())
    return model, diagnose(ward(model), INT6, keep=0.07, most=1)


def test_a_layer_that_cannot_be_rounded_is_found() -> None:
    _, found = found_planted()
    worst, second = found.causes.worst[:2]
    assert worst.layer == BAD
    assert worst.kl > 5 * second.kl
    assert found.causes.share(worst) > 0.7
    inside = max(found.causes.parts, key=lambda one: one.kl)
    assert (inside.layer, inside.readers, inside.place) == (BAD, ("mlp.down_proj",), "down_proj")
    assert len(found.causes.parts) == 4
    assert [one.number for one in found.causes.along] == [0, 1, 2, 3]
    said = " ".join(sentences(found))
    assert f"Layer {BAD} makes up" in said
    assert f"Worst inside them: {BAD} down" in said


def test_an_outlier_channel_is_found_behind_int8() -> None:
    model = outlying(plain())
    found = diagnose(ward(model, limits=Scheme.INT8), W8A8, keep=0.01, most=1)
    assert found.causes.worst[0].layer == BAD
    inside = max(found.causes.parts, key=lambda one: one.kl)
    assert inside.readers == ("mlp.gate_proj", "mlp.up_proj")
    assert "It reads channel 7, which is" in " ".join(sentences(found))
    cured = {one.name: one for one in found.cures}
    assert cured["smoothed 0.5"].recovered > 0.8
    assert cured["smoothed 0.5"].export == "--scheme w8a8 --smooth 0.5"


def test_a_layer_alone_is_a_model_with_that_layer_rounded() -> None:
    """Held against a copy in which the weights of one layer were rounded by hand."""
    model = plain()
    inputs = capture(model, TEXTS, keep=20)
    found = causes(model, quantized(model, INT4, {}), asked()[0], inputs=inputs, most=1, hearer=quiet)  # type: ignore[arg-type]
    for number in range(4):
        by_hand = copy.deepcopy(model)
        for name, part in by_hand.get_submodule(f"model.layers.{number}").named_modules():
            if name.endswith("_proj") and isinstance(part, nn.Linear):
                part.weight.copy_(grouped(part.weight, bits=4, group=64))
        assert found.layers[number].kl == divergence(asked()[0], by_hand).kl_mean.value > 0
    assert found.kl == divergence(asked()[0], quantized(model, INT4, {})).kl_mean.value
    assert sum(found.share(one) for one in found.layers) == pytest.approx(1.0)


def test_a_model_has_its_own_layers_back_also_after_a_failure() -> None:
    model, other = plain(), quantized(plain(), W8A8, {})
    own = dict(model.named_modules())
    name = "model.layers.1.mlp.up_proj"
    with pytest.raises(RuntimeError), exchanged(model, other, [name]) as changed:  # noqa: PT012
        assert changed.get_submodule(name) is other.get_submodule(name)
        raise RuntimeError
    assert dict(model.named_modules()) == own


def test_output_errors_by_hand() -> None:
    """Of one linear: |X Q(W)^T - X W^T| / |X W^T|; a bias does not make it look smaller."""
    model = a_model("qwen2")
    rows = torch.randn(9, 64, generator=torch.Generator().manual_seed(1))
    inputs = {name: _kept(torch.ones(5, group.columns)) for group in groups(model) for name in group.names}
    inputs |= dict.fromkeys(("model.layers.0.self_attn.q_proj",), _kept(rows))
    name = "model.layers.0.self_attn.q_proj"
    weight = model.get_parameter(f"{name}.weight")
    codes, scale = absmax_codes(weight, bits=8)
    expected = float((rows @ (codes * scale - weight).T).norm() / (rows @ weight.T).norm())
    errors = output_errors(model, quantized(model, Variant(Format.W8), {}), inputs)
    assert errors[name] == pytest.approx(expected, rel=1e-3)
    assert len(errors) == 14


def _kept(rows: Tensor) -> Inputs:
    inputs = Inputs(torch.zeros(rows.shape[1]), keep=len(rows))
    inputs.add(rows)
    return inputs


def test_a_linear_of_zeros_has_no_error() -> None:
    model = plain()
    model.get_parameter("model.layers.0.mlp.up_proj.weight").zero_()
    errors = output_errors(model, quantized(model, INT4, {}), capture(model, TEXTS, keep=8))
    assert errors["model.layers.0.mlp.up_proj"] == 0.0


def test_task_sets_are_measured_apart_and_together() -> None:
    model, found = found_planted()
    at = ward(model)
    made = quantized(model, INT6, {})
    for part, one in zip(at.parts, found.plain.sets, strict=True):
        assert one.divergence.kl_mean.value == divergence(part.asked, made).kl_mean.value
        assert [held.metric for held in one.findings] == [
            Metric.KL_MEAN, Metric.PERPLEXITY_RATIO, Metric.TOP1_AGREEMENT,
        ]  # fmt: skip
    sizes = [one.divergence.positions for one in found.plain.sets]
    weighed = sum(n * one.divergence.kl_mean.value for n, one in zip(sizes, found.plain.sets, strict=True))
    assert found.plain.whole.positions == sum(sizes)
    assert found.plain.whole.kl_mean.value == pytest.approx(weighed / sum(sizes), rel=1e-9)


def test_every_cure_is_what_its_name_says() -> None:
    model, found = found_planted()
    at, inputs = ward(model), capture(model, TEXTS, keep=256)
    kept = quantized(model, INT6, {})
    names = [name for group in groups(model) for name in group.names if name.startswith(f"model.layers.{BAD}.")]
    for name in names:
        kept.set_submodule(name, model.get_submodule(name))
    others = {
        "7 % of channels kept": dataclasses.replace(INT6, keep=0.07),
        "scales searched": dataclasses.replace(INT6, scaled=True),
        "groups of 32": Variant(Format.INT6, 32),
        "groups of 128": Variant(Format.INT6, 128),
    }
    made = {f"layer {BAD} in 16 bits": kept} | {
        name: quantized(model, variant, inputs) for name, variant in others.items()
    }
    assert [one.name for one in found.cures] == list(made)
    before = found.plain.whole.kl_mean.value
    for one in found.cures:
        pairs = [
            Pair(part.asked.baseline[name], distribution(made[one.name], by[name], k=part.asked.k))
            for part in at.parts
            for by in [{each.prompt_id: each for each in part.asked.sequences}]
            for name in part.asked.drawn
        ]
        assert one.measured.whole.kl_mean.value == pytest.approx(compared(pairs).kl_mean.value, rel=1e-6)
        assert one.recovered == pytest.approx(1 - one.measured.whole.kl_mean.value / before)
    assert found.cures[0].recovered > 0.75
    assert (
        found.cures[0].size == found.size + sum(_saved(model, name) for name in names) == size(model, INT6, full=names)
    )
    assert [one.size for one in found.cures[1:]] == [size(model, variant) for variant in others.values()]


def _saved(model: nn.Module, name: str) -> int:
    """Bytes between 16 bits and int6 in groups of 64 with a scale of 16 bits each."""
    rows, columns = model.get_parameter(f"{name}.weight").shape
    return int(rows * columns * 2 - rows * columns * 6 // 8 - rows * -(-columns // 64) * 2)


def test_the_model_is_as_it_was() -> None:
    model, _ = found_planted()
    fresh = planted(plain()).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in model.state_dict().items())
    assert model.state_dict().keys() == fresh.keys()


def test_smoothing_is_a_cure_where_activations_are_rounded() -> None:
    model = outlying(plain())
    at = ward(model)
    found = diagnose(at, W8A8, keep=0.01, most=0)
    by_hand = quantized(smoothed(model, capture(model, TEXTS), alpha=0.5, deep=True), W8A8, {})
    deep = next(one for one in found.cures if one.name == "smoothed 0.5, deep")
    assert deep.measured.sets[1].divergence.kl_mean.value == pytest.approx(
        divergence(at.parts[1].asked, by_hand).kl_mean.value, rel=1e-6
    )
    assert found.causes.parts == ()
    assert [one.name for one in found.cures] == ["smoothed 0.5", "smoothed 0.5, deep"]


PLANS = [
    (INT4, [None, "--scheme int4 --group 64 --scaled", "--scheme int4 --group 32", "--scheme int4 --group 128"]),
    (Variant(Format.INT6, 2), [None, None, None]),
    (Variant(Format.W8), []),
    (Variant(Format.FP8), ["--scheme fp8-e4m3 --smooth 0.5", "--scheme fp8-e4m3 --smooth 0.5 --deep"]),
    (
        Variant(Format.W4A8, 64),
        [
            "--scheme w4a8 --group 64 --smooth 0.5",
            "--scheme w4a8 --group 64 --smooth 0.5 --deep",
            None,
            "--scheme w4a8 --group 64 --scaled",
            "--scheme w4a8 --group 32",
            "--scheme w4a8 --group 128",
        ],
    ),
]


@pytest.mark.parametrize(("variant", "export"), PLANS)
def test_each_format_has_its_cures_and_how_to_write_them(variant: Variant, export: list[str | None]) -> None:
    assert [one.export for one in plans(variant, keep=0.01)] == export


def a_result(name: str, *qualities: Quality) -> SetResult:
    held = (
        dataclasses.replace(a_finding(), metric=metric, quality=quality, reason=f"{metric} told")
        for metric, quality in zip(Metric, qualities, strict=False)
    )
    return SetResult(name, a_divergence(), tuple(held))


def a_cure(name: str, size_: int, recovered: float, *qualities: Quality) -> Cured:
    return Cured(name, None, Measured((a_result("chat", *qualities),), a_divergence()), size_, recovered)


OK, UNCLEAR, BROKEN = Quality.OK, Quality.INCONCLUSIVE, Quality.DEGRADED
CHOICES = [
    ([a_cure("large", 9, 0.9, OK), a_cure("small", 5, 0.5, OK), a_cure("worse", 1, 0.8, BROKEN)], True, "small"),
    ([a_cure("doubtful", 1, 0.5, UNCLEAR), a_cure("sure", 5, 0.4, OK)], True, "sure"),
    ([a_cure("doubtful", 1, 0.5, UNCLEAR), a_cure("broken", 0, 0.9, BROKEN)], True, "doubtful"),
    ([a_cure("a", 1, 0.5, BROKEN), a_cure("b", 5, 0.6, BROKEN)], True, "b"),
    ([a_cure("a", 1, 0.5, OK), a_cure("b", 5, 0.6, OK)], False, "b"),
    ([a_cure("a", 1, 0.0, OK), a_cure("b", 5, -0.6, OK)], True, None),
]


@pytest.mark.parametrize(("cures", "broken", "name"), CHOICES)
def test_the_cure_that_is_named(cures: list[Cured], broken: bool, name: str | None) -> None:
    chosen = best(cures, broken=broken)
    assert (chosen and chosen.name) == name


def test_a_set_is_as_bad_as_its_worst_number() -> None:
    assert judged(a_result("chat", OK, OK)) == "holds"
    assert judged(a_result("chat", BROKEN, OK, BROKEN, Quality.WARN)) == "breaks: KL, PPL"
    assert judged(a_result("chat", OK, UNCLEAR)) == "unclear: kl_p99"


def test_layers_are_told_apart_on_the_sets_that_break() -> None:
    at = ward(plain())
    broken = Measured((a_result("one", OK), a_result("other", BROKEN)), a_divergence())
    assert probe(at.parts, broken).drawn == ("p-3", "p-4")
    sound = Measured((a_result("one", OK), a_result("other", OK)), a_divergence())
    assert probe(at.parts, sound).drawn == ("p-0", "p-3", "p-1", "p-4", "p-2")
    assert probe(at.parts, sound, most=3).drawn == ("p-0", "p-3", "p-1")
    twice = (at.parts[0], dataclasses.replace(at.parts[0], name="other"))
    assert probe(twice, sound).drawn == ("p-0", "p-1", "p-2")


def test_an_id_that_two_sets_share_keeps_its_own_baseline() -> None:
    one, other = ward(plain()).parts
    last, first = one.asked.sequences[-1], other.asked.sequences[0]
    same = dataclasses.replace(first, prompt_id=last.prompt_id)
    asked = dataclasses.replace(
        other.asked,
        sequences=(same,),
        baseline={last.prompt_id: other.asked.baseline[first.prompt_id]},
        drawn=(last.prompt_id,),
    )
    both = (one, dataclasses.replace(other, asked=asked))
    found = probe(both, Measured((a_result("one", OK), a_result("other", OK)), a_divergence()))
    assert found.drawn[1] == last.prompt_id
    assert found.sequences[1] == same
    assert found.baseline[last.prompt_id] is other.asked.baseline[first.prompt_id]


def test_the_page_needs_nothing_else_and_says_what_it_shows() -> None:
    _, found = found_planted()
    made = html("int4 <of> a model", found)
    assert "int4 &lt;of&gt; a model" in made
    assert not re.search(r"<script|https?://|<link", made)
    shown = re.findall(r'<img alt="([^"]*)" src="data:image/png;base64,', made)
    assert len(shown) == made.count("<img") == 4
    assert f"layer {BAD} {found.causes.worst[0].kl:.3g}" in shown[1]
    assert "Critical limits: one 0.13, other 0.13" in shown[0]
    for line in sentences(found):
        assert f"<p>{line}</p>" in made
    assert made.count("<tr>") >= 2 + 4 + 4 + len(found.cures) + 5


def test_what_breaks_is_said_with_the_number_that_did_it() -> None:
    _, found = found_planted()
    held = Measured((a_result("chat", OK), a_result("math", BROKEN), a_result("sql", UNCLEAR)), found.plain.whole)
    said = list(sentences(dataclasses.replace(found, plain=held)))
    assert said[0] == ("int6 g64 breaks 1 of 3 task sets: math; not clear on so few prompts: sql. math: kl_mean told.")
    sound = dataclasses.replace(held, sets=held.sets[:1])
    assert next(sentences(dataclasses.replace(found, plain=sound))) == "int6 g64 breaks none of 1 task sets."
    helpless = list(sentences(dataclasses.replace(found, cures=())))
    assert helpless[-1] == "No cure that was tried wins anything back."
    assert said[-1] == "Nothing that helps can be exported."
    served = tuple(dataclasses.replace(one, export="--way") if "groups" in one.name else one for one in found.cures)
    told = list(sentences(dataclasses.replace(found, plain=held, cures=served)))
    assert told[-2].startswith("That cannot be exported. Of what can be: groups of 32 wins back")
    assert told[-1] == "Write it with: quantwatch toolkit export --way --out FOLDER"


def test_a_format_that_changes_nothing_has_no_cause() -> None:
    model, found = found_planted()
    inputs = capture(model, TEXTS, keep=8)
    nothing = causes(model, copy.deepcopy(model), ward(model).parts[0].asked, inputs=inputs, most=1, hearer=quiet)  # type: ignore[arg-type]
    assert nothing.kl == nothing.total == 0.0
    assert [nothing.share(one) for one in nothing.layers] == [0.0] * 4
    said = list(sentences(dataclasses.replace(found, causes=nothing, cures=())))
    assert said[1:] == ["No layer alone moves anything.", "No cure that was tried wins anything back."]


def test_json_holds_every_layer_and_cure() -> None:
    _, found = found_planted()
    told = as_json(found)
    assert [one["layer"] for one in told["causes"]["layers"]] == [0, 1, 2, 3]
    assert [one["name"] for one in told["cures"]] == [row[0] for row in cure_rows(found)[1:]]
    assert told["sets"]["one"]["kl_mean"] == found.plain.sets[0].divergence.kl_mean.value
    assert told["conclusion"] == list(sentences(found))
