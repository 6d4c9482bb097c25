"""The real SmolLM2 under the toolkit: outliers are found, and the cures are worth what the pages say."""

import copy
from functools import cache

import pytest

from quantwatch.prompts.draw import draw
from quantwatch.prompts.load import load_set, shipped_sets
from quantwatch.toolkit.formats import Format, Variant
from quantwatch.toolkit.model import Loaded, load
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.prepare import calibration_prompts
from quantwatch.toolkit.quantize_study import quantize_study
from quantwatch.toolkit.ranges import By, Limits, findings
from quantwatch.toolkit.recipe import Scheme
from quantwatch.toolkit.score import exam
from quantwatch.toolkit.smooth_study import Bench, smooth_study
from quantwatch.toolkit.subject import texts
from quantwatch.toolkit.survey import survey
from support.real_model import smollm2

pytestmark = [pytest.mark.model, pytest.mark.figures]


@cache
def loaded() -> Loaded:
    return load(smollm2())


def bench(*, inject: float | None = None) -> Bench:
    model = copy.deepcopy(loaded().model)
    if inject is not None:
        inject_outliers(model, inject, seed=0)
    at = Loaded(model, loaded().tokenizer)
    drawn = draw(load_set(shipped_sets()["chat"]), size=8, seed=0)
    asked = exam(at, drawn, limit=48)
    return Bench(model, texts(at, calibration_prompts()), asked, lambda _: lambda _done, _all: None)


def test_its_own_massive_activations_are_found() -> None:
    found = findings(survey(loaded().model, texts(loaded(), calibration_prompts())), Limits())
    worst = max((one for each in found for one in each.outliers), key=lambda one: one.ratio)
    assert (worst.site.layer, worst.site.place, worst.channel) == (11, "down_proj", 1229)
    assert worst.absmax == pytest.approx(3278, rel=0.01)
    down = next(one for one in found if one.site is worst.site)
    assert down.of(8, By.TENSOR).scale == pytest.approx(25.81, rel=0.01)
    assert down.of(8, By.TENSOR).small > 0.99


def test_smoothing_cures_injected_outliers() -> None:
    study = smooth_study(bench(inject=100.0), alpha=0.5, deep=False)
    assert study.mean_drop >= 0.8
    naive, cured = (one[Scheme.W8A8].kl_mean.value for one in (study.naive, study.cured))
    assert naive >= 10 * cured


def test_salient_channels_win_back_part_of_what_int4_costs() -> None:
    variants = [Variant(Format.INT4, 64), Variant(Format.INT4, 64, keep=0.01)]
    plain, kept = quantize_study(bench(), variants, inject=None, seed=0, tell=print)
    assert kept.divergence.kl_mean.value < plain.divergence.kl_mean.value
    assert kept.size < 1.02 * plain.size
