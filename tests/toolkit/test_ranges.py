"""Outlier channels are found, and the scales they force are those that can be computed by hand."""

import json
import math

import pytest
import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.families import FAMILIES, groups
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.pictures import drawn, heat_map, histograms
from quantwatch.toolkit.ranges import By, Finding, Limits, Reason, findings, heat, outliers, spectrum
from quantwatch.toolkit.ranges_report import (
    as_json,
    consequence_sentence,
    html,
    narrow_row,
    number,
    outlier_row,
    row,
    sentences,
)
from quantwatch.toolkit.statistics import ChannelStatistics
from quantwatch.toolkit.survey import Kind, Site, survey
from support.toolkit import a_model, logits, some_ids

LIMITS = Limits()


def site(x: Tensor, *, layer: int = 0) -> Site:
    statistics = ChannelStatistics(x.shape[-1])
    statistics.add(x)
    return Site(layer, Kind.INPUT, ("mlp.down_proj",), statistics)


def found(x: Tensor) -> Finding:
    return findings([site(x)], LIMITS)[0]


def loud(rows: int = 400) -> Tensor:
    """Sixty-four channels within 1.5, and one that reaches 185.4."""
    x = 3.0 * torch.rand(rows, 65, generator=torch.Generator().manual_seed(0)) - 1.5
    x[:, 64] = 100.0 + 85.4 * torch.rand(rows, generator=torch.Generator().manual_seed(1))
    x[3, 64] = 185.4
    return x


def test_one_channel_of_185_ruins_the_scale_of_all() -> None:
    """S = 185.4 / 127 = 1.46: what is up to 0.73 becomes 0, and 1.2, like all else up to 1.5, becomes 1."""
    one = found(loud())
    tensor = one.of(8, By.TENSOR)
    assert tensor.scale == pytest.approx(1.46, abs=0.005)
    assert round(1.2 / tensor.scale) == 1
    assert one.of(4, By.TENSOR).scale == pytest.approx(185.4 / 7)
    assert tensor.zeros == pytest.approx(64 / 65 * 0.73 / 1.5, abs=0.01)
    assert tensor.small == pytest.approx(64 / 65, abs=1e-3)
    assert one.of(8, By.CHANNEL).small == pytest.approx(1.5 / 127, abs=0.01)
    assert [(out.channel, out.reasons) for out in one.outliers] == [(64, (Reason.RATIO, Reason.ABSMAX))]
    assert one.outliers[0].ratio == pytest.approx(185.4 / 1.5, rel=0.01)


def test_the_sentence_can_be_checked_by_hand() -> None:
    said = consequence_sentence(found(loud()))
    assert "max|X| = 185.4" in said
    assert "S = max|X| / 127 = 1.46" in said
    assert "max|X| / 7 = 26.49" in said


@pytest.mark.parametrize("bits", [8, 4])
def test_shares_read_off_histograms_are_near_those_of_the_codes(bits: int) -> None:
    x = torch.randn(3000, 16, generator=torch.Generator().manual_seed(3)) * torch.logspace(-1, 1, 16)
    one, top = found(x), 2 ** (bits - 1) - 1
    for by, scale in ((By.TENSOR, x.abs().max() / top), (By.CHANNEL, x.abs().amax(0) / top)):
        codes = (x / scale).round()
        assert one.of(bits, by).zeros == pytest.approx(float((codes == 0).double().mean()), abs=0.01)
        assert one.of(bits, by).small == pytest.approx(float((codes.abs() <= 1).double().mean()), abs=0.01)
    token = one.of(bits, By.TOKEN)
    codes = (x / (x.abs().amax(1, keepdim=True) / top)).round()
    assert token.zeros == pytest.approx(float((codes == 0).double().mean()), abs=1e-12)
    assert token.scale == pytest.approx(float((x.abs().amax(1) / top).double().mean()))


def test_a_channel_that_few_tokens_carry_is_found_by_its_kurtosis() -> None:
    x = torch.randn(1000, 32, generator=torch.Generator().manual_seed(0))
    x[7, 5] = 40.0
    (out,) = outliers(site(x), LIMITS)
    assert out.channel == 5
    assert out.reasons == (Reason.KURTOSIS,)
    assert out.kurtosis > 100


def test_even_channels_hold_no_outlier() -> None:
    assert outliers(site(torch.randn(500, 64, generator=torch.Generator().manual_seed(0))), LIMITS) == ()


def test_limits_decide() -> None:
    x = loud()
    assert outliers(site(x), Limits(ratio=200.0, absmax=200.0)) == ()
    assert outliers(site(x), Limits(ratio=200.0, absmax=185.0))[0].reasons == (Reason.ABSMAX,)


def test_the_range_by_hand() -> None:
    one = found(torch.tensor([[1.0, -8.0, 0.5], [-2.0, 4.0, 0.0]])).range
    assert (one.least, one.most, one.absmax, one.median_channel) == (-8.0, 4.0, 8.0, 2.0)
    assert one.mean == pytest.approx(-4.5 / 6)
    assert one.span == 16.0
    assert one.p999 <= one.absmax


def test_a_channel_that_is_always_zero_has_an_endless_span() -> None:
    one = found(torch.tensor([[1.0, 0.0]]))
    assert math.isinf(one.range.span)
    assert number(one.range.span) == "endless"
    json.dumps(as_json([one], LIMITS), allow_nan=False)


def test_nothing_seen_is_no_range() -> None:
    nothing = Site(0, Kind.KEYS, (), ChannelStatistics(3))
    assert outliers(nothing, LIMITS) == ()
    with pytest.raises(ValueError, match="no activation"):
        findings([nothing], LIMITS)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_linear_and_the_cache_are_seen(kind: str) -> None:
    model, ids = a_model(kind), some_ids(20)
    sites = survey(model, [ids, some_ids(9, seed=2)])
    assert [one.place for one in sites] == 2 * [
        "q_proj k_proj v_proj",
        "gate_proj up_proj",
        "o_proj",
        "down_proj",
        "keys",
        "values",
    ]
    assert {one.statistics.tokens for one in sites} == {29}


def test_what_is_seen_is_what_the_linears_read_and_the_cache_holds() -> None:
    model, ids, read = a_model(), some_ids(20), []
    linear = model.get_submodule("model.layers.1.mlp.down_proj")
    linear.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    values: list[Tensor] = []
    model.get_submodule("model.layers.1.self_attn.v_proj").register_forward_hook(
        lambda _part, _args, out: values.append(out)
    )
    sites = {one.name: one.statistics for one in survey(model, [ids])}
    assert torch.equal(sites["layer 1, down_proj"].absmax, read[0].abs().flatten(0, -2).amax(0))
    assert torch.equal(sites["layer 1, values"].most, values[0].flatten(0, -2).amax(0))


def test_looking_leaves_the_model_as_it_was() -> None:
    model, ids = a_model(), some_ids()
    before = logits(model, ids)
    heard: list[tuple[int, int]] = []
    survey(model, [ids, ids], heard=lambda done, of: heard.append((done, of)))
    assert heard == [(1, 2), (2, 2)]
    assert torch.equal(logits(model, ids), before)
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_an_injected_outlier_is_found_behind_every_norm() -> None:
    model, ids = a_model(), some_ids(60)
    gains = [group.gain.clone() for group in groups(model) if group.norm is not None]
    inject_outliers(model, 100.0, seed=3)
    channels = [
        int((group.gain / gain).argmax())
        for group, gain in zip((one for one in groups(model) if one.norm is not None), gains, strict=True)
    ]
    sites = survey(model, [ids])
    behind = [one for one in sites if one.place in ("q_proj k_proj v_proj", "gate_proj up_proj")]
    assert [outliers(one, LIMITS)[0].channel for one in behind] == channels


def test_a_broken_model_is_not_described() -> None:
    model = a_model()
    model.get_parameter("model.layers.0.mlp.up_proj.weight")[3, 3] = math.nan
    with pytest.raises(InputError, match=r"layer 0, down_proj: numbers that are not finite"):
        survey(model, [some_ids()])


def test_no_prompt_and_an_unknown_family_are_refused() -> None:
    with pytest.raises(InputError, match="one prompt at least"):
        survey(a_model(), [])
    with pytest.raises(InputError, match=r"families\.py"):
        survey(a_model("phi"), [some_ids()])


def model_findings(model: nn.Module) -> tuple[tuple[Site, ...], tuple[Finding, ...]]:
    sites = survey(model, [some_ids(40)])
    return sites, findings(sites, LIMITS)


def test_report_and_pictures_hold_every_place() -> None:
    model = a_model()
    inject_outliers(model, 100.0, seed=0)
    sites, seen = model_findings(model)
    hot = heat(sites)
    assert {place: tuple(one.shape) for place, one in hot.items()}["keys"] == (2, 32)
    pictures = drawn(heat_map({"keys": hot["keys"]}), ("png", "svg"))
    counted = drawn(histograms({"keys": spectrum(sites)["keys"]}), ("png",))["png"]
    assert pictures["png"].startswith(b"\x89PNG")
    assert b"<svg" in pictures["svg"]
    text = html("Activations of tiny <m>", seen, tokens=40, pictures=[("heat", pictures["png"]), ("sizes", counted)])
    assert "tiny &lt;m&gt;" in text
    assert "data:image/png;base64," in text
    assert "http" not in text
    assert all(one.site.name in text for one in seen)
    assert len(as_json(seen, LIMITS)["sites"]) == len(seen) == 12
    assert " ".join(sentences(seen, tokens=40)).count("outlier channels") == 1
    assert all(len(row(one)) == 11 and len(narrow_row(one)) == 9 for one in seen)
    assert outlier_row(next(out for one in seen for out in one.outliers))[1].isdigit()


def test_a_picture_is_the_same_twice() -> None:
    absmax = {"keys": torch.rand(2, 8, generator=torch.Generator().manual_seed(0))}
    assert drawn(heat_map(absmax), ("svg",)) == drawn(heat_map(absmax), ("svg",))
