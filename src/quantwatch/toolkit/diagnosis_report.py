"""A diagnosis as sentences, rows, JSON, and one HTML page with pictures."""

from collections.abc import Iterator, Sequence
from typing import Any

from quantwatch.flow.as_json import json_number
from quantwatch.flow.divergence import Divergence, Estimate
from quantwatch.flow.verdict import Finding, Metric, Quality
from quantwatch.toolkit import page
from quantwatch.toolkit.causes import Cause, Causes
from quantwatch.toolkit.diagnosis import Cured, Diagnosis, Measured, SetResult, best
from quantwatch.toolkit.pictures import cause_bars, drawn, heat_map, limit_bars
from quantwatch.toolkit.ranges import Limits, Outlier, heat, outliers
from quantwatch.toolkit.ranges_report import OUTLIER_HEAD, outlier_row, percent

SET_HEAD = ("task set", "mean KL", "interval", "PPL ratio", "top-1", "judged")
LAYER_HEAD = ("layer", "KL alone", "share", "output error", "at", "stream error")
PART_HEAD = ("layer, linears", "KL alone", "output error")
CURE_HEAD = ("cure", "mean KL", "PPL ratio", "top-1", "won", "breaks", "MB")

WORDS = {Quality.OK: "holds", Quality.WARN: "warns", Quality.INCONCLUSIVE: "unclear", Quality.DEGRADED: "breaks"}
SHORT = {Metric.KL_MEAN: "KL", Metric.PERPLEXITY_RATIO: "PPL", Metric.TOP1_AGREEMENT: "top-1"}


def set_row(one: SetResult) -> tuple[str, ...]:
    """A line of the table of task sets; judged: the worst word, and the numbers that earned it."""
    kl = one.divergence.kl_mean
    ends = "-" if kl.interval is None else f"{kl.interval.low:.3g} .. {kl.interval.high:.3g}"
    return (one.name, f"{kl.value:.3g}", ends, *_others(one.divergence), judged(one))


def judged(one: SetResult) -> str:
    """`breaks: KL, top-1`."""
    word = WORDS[one.quality]
    if one.quality is Quality.OK:
        return word
    earned = [SHORT.get(found.metric, str(found.metric)) for found in one.findings if found.quality is one.quality]
    return f"{word}: {', '.join(earned)}"


def _others(one: Divergence) -> tuple[str, str]:
    return f"{one.perplexity_ratio.value:.3f}", f"{one.top1_agreement.value:.3f}"


def layer_row(found: Causes, one: Cause) -> tuple[str, ...]:
    """A line of the table of layers."""
    stream = percent(found.along[one.layer].relative)
    return (str(one.layer), f"{one.kl:.3g}", percent(found.share(one)), percent(one.error), one.place, stream)


def part_row(one: Cause) -> tuple[str, ...]:
    """A line of the table of groups of linears within the worst layers."""
    return (part_name(one), f"{one.kl:.3g}", percent(one.error))


def part_name(one: Cause) -> str:
    """`11 down`."""
    return f"{one.layer} {' '.join(name.rpartition('.')[2].replace('_proj', '') for name in one.readers)}"


def cure_rows(found: Diagnosis) -> list[tuple[str, ...]]:
    """The table of cures; the first line is the model without one."""
    plain = _cure_row(f"none: {found.variant.name}", found.plain, found.size, won="-")
    return [plain, *(_cure_row(one.name, one.measured, one.size, won=percent(one.recovered)) for one in found.cures)]


def _cure_row(name: str, measured: Measured, size: int, *, won: str) -> tuple[str, ...]:
    unclear = len(measured.named(Quality.INCONCLUSIVE))
    breaks = f"{len(measured.broken)}{f' + {unclear}?' if unclear else ''}"
    return (name, f"{measured.whole.kl_mean.value:.3g}", *_others(measured.whole), won, breaks, f"{size / 1e6:.1f}")


def sentences(found: Diagnosis) -> Iterator[str]:
    """The conclusion: what breaks, where it comes from, what helps."""
    yield _broken(found)
    yield _caused(found.causes, outlying(found))
    yield from _helped(found)


def _broken(found: Diagnosis) -> str:
    sets, broken = found.plain.sets, found.plain.broken
    unclear = found.plain.named(Quality.INCONCLUSIVE)
    doubt = f"; not clear on so few prompts: {', '.join(unclear)}" if unclear else ""
    if not broken:
        return f"{found.variant.name} breaks none of {len(sets)} task sets{doubt}."
    furthest = max((one for one in sets if one.name in broken), key=lambda one: one.divergence.kl_mean.value)
    why = next(one for one in furthest.findings if one.quality is Quality.DEGRADED)
    return (
        f"{found.variant.name} breaks {len(broken)} of {len(sets)} task sets: {', '.join(broken)}{doubt}. "
        f"{furthest.name}: {why.reason}."
    )


def _caused(found: Causes, outside: Sequence[Outlier]) -> str:
    ranked = found.worst
    if not found.total:
        return "No layer alone moves anything."
    some = ranked[: max(len({one.layer for one in found.parts}), 1)]
    share = sum(found.share(one) for one in some)
    named = ", ".join(str(one.layer) for one in some)
    even = len(some) / len(ranked)
    said = (
        f"Layer{'s' if len(some) > 1 else ''} {named} make{'' if len(some) > 1 else 's'} up {percent(share)} of what "
        f"the layers do alone (an even share is {percent(even)}); they add up to {found.total:.3g} nats, "
        f"all together do {found.kl:.3g}."
    )
    if found.parts:
        worst = max(found.parts, key=lambda one: one.kl)
        said += f" Worst inside them: {part_name(worst)}, {worst.kl:.3g} nats alone."
        near = [one for one in outside if one.site.layer == worst.layer and one.site.readers == worst.readers]
        if near:
            said += f" It reads channel {near[0].channel}, which is {near[0].ratio:.4g} times the median channel."
    return said


def _helped(found: Diagnosis) -> Iterator[str]:
    broken = bool(found.plain.broken)
    chosen = best(found.cures, broken=broken)
    if chosen is None:
        yield "No cure that was tried wins anything back."
        return
    yield f"{'The cure' if broken else 'None is needed; most is won back by this'}: {_praised(chosen, found)}"
    if chosen.export is None:
        chosen = best([one for one in found.cures if one.export is not None], broken=broken)
        if chosen is None:
            yield "Nothing that helps can be exported."
            return
        yield f"That cannot be exported. Of what can be: {_praised(chosen, found)}"
    yield f"Write it with: quantwatch toolkit export {chosen.export} --out FOLDER"


def _praised(one: Cured, found: Diagnosis) -> str:
    left, unclear = one.measured.broken, one.measured.named(Quality.INCONCLUSIVE)
    ends = f"leaves broken: {', '.join(left)}" if left else "nothing breaks any more"
    if not found.plain.broken:
        ends = "nothing broke before"
    doubt = f" (not clear: {', '.join(unclear)})" if unclear else ""
    return (
        f"{one.name} wins back {percent(one.recovered)} of the mean KL at {one.size / 1e6:.1f} MB "
        f"(without it {found.size / 1e6:.1f}, in 16 bits {found.full / 1e6:.1f}); {ends}{doubt}."
    )


def outlying(found: Diagnosis) -> list[Outlier]:
    """Outlier channels that the worst layers read, furthest out first."""
    layers = {one.layer for one in found.causes.parts}
    held = [out for site in found.sites if site.layer in layers for out in outliers(site, Limits())]
    return sorted(held, key=lambda one: -one.ratio)


def html(title: str, found: Diagnosis) -> str:
    """The report as one file: no script, no network; every picture says in words what it shows."""
    sets = {one.name: _ends(one.divergence.kl_mean) for one in found.plain.sets}
    held = {one.name: limit for one in found.plain.sets if (limit := _critical(one.findings)) is not None}
    cured = {"none": found.plain, **{one.name: one.measured for one in found.cures}}
    values = {name: _ends(one.whole.kl_mean) for name, one in cured.items()}
    alone = [one.kl for one in found.causes.layers]
    parts = [page.paragraph(line) for line in sentences(found)]
    parts += [page.heading("Which task sets break")]
    said = f"Mean KL in nats: {_said(sets)}. Critical limits: {_limits_said(held)}."
    parts += [_png(limit_bars(f"{found.variant.name} by task set", sets, held), said)]
    parts += [page.table(SET_HEAD, [set_row(one) for one in found.plain.sets])]
    parts += [page.paragraph(one.reason + ".") for each in found.plain.sets for one in each.findings if _bad(one)]
    parts += [page.heading("Which layers cause it")]
    parts += [_png(cause_bars("Each layer quantized alone", alone, found.causes.along), _layers_said(found.causes))]
    parts += [page.table(LAYER_HEAD, [layer_row(found.causes, one) for one in found.causes.worst])]
    parts += [page.heading("Inside the worst layers")]
    parts += [page.table(PART_HEAD, [part_row(one) for one in found.causes.parts])]
    parts += [page.table(OUTLIER_HEAD, [outlier_row(one) for one in outlying(found)])]
    parts += [page.heading("Which cure buys what")]
    parts += [_png(limit_bars("All task sets together", values, {}), f"Mean KL in nats: {_said(values)}.")]
    parts += [page.table(CURE_HEAD, cure_rows(found))]
    parts += [page.heading("Activations of full precision")]
    parts += [_png(heat_map(heat(found.sites)), "max|x| of every channel in every layer, a panel for each place.")]
    return page.page(title, parts)


def _png(figure: Any, said: str) -> str:
    return page.picture(drawn(figure, ("png",))["png"], said)


def _layers_said(found: Causes) -> str:
    told = ", ".join(f"layer {one.layer} {one.kl:.3g}" for one in found.worst)
    return (
        f"Mean KL in nats of each layer alone, worst first: {told}. Behind the last layer the error of the residual "
        f"stream is {percent(found.along[-1].relative)}."
    )


def _bad(one: Finding) -> bool:
    return one.quality in (Quality.DEGRADED, Quality.INCONCLUSIVE)


def _said(values: dict[str, tuple[float, float, float]]) -> str:
    return "; ".join(f"{name} {value:.3g} ({low:.3g} to {high:.3g})" for name, (value, low, high) in values.items())


def _limits_said(held: dict[str, float]) -> str:
    return ", ".join(f"{name} {limit:g}" for name, limit in held.items()) or "none"


def _ends(one: Estimate) -> tuple[float, float, float]:
    """Value and interval; the value itself where there is none."""
    return (one.value, *((one.value, one.value) if one.interval is None else (one.interval.low, one.interval.high)))


def _critical(found: Sequence[Finding]) -> float | None:
    return next((one.limit.critical for one in found if one.metric is Metric.KL_MEAN), None)


def as_json(found: Diagnosis) -> dict[str, Any]:
    """Everything, for programs; KL in nats."""
    return {
        "variant": found.variant.name,
        "size": found.size,
        "size_16_bit": found.full,
        "conclusion": list(sentences(found)),
        **_measured(found.plain),
        "causes": {
            "kl_everything": found.causes.kl,
            "kl_layers_added_up": found.causes.total,
            "layers": [_cause(one) | {"share": found.causes.share(one)} for one in found.causes.layers],
            "inside_the_worst": [_cause(one) for one in found.causes.parts],
            "stream_error": [one.relative for one in found.causes.along],
        },
        "cures": [
            {"name": one.name, "size": one.size, "recovered": one.recovered, "export": one.export}
            | _measured(one.measured)
            for one in found.cures
        ],
    }


def _cause(one: Cause) -> dict[str, Any]:
    told = {"layer": one.layer, "linears": list(one.readers), "kl_alone": one.kl}
    return told | {"output_error": one.error, "output_error_at": one.place}


def _measured(one: Measured) -> dict[str, Any]:
    return {"whole": _numbers(one.whole), "sets": {each.name: _set(each) for each in one.sets}}


def _set(one: SetResult) -> dict[str, Any]:
    return {"judged": WORDS[one.quality], "reasons": [held.reason for held in one.findings]} | _numbers(one.divergence)


def _numbers(one: Divergence) -> dict[str, Any]:
    value, low, high = _ends(one.kl_mean)
    return {
        "kl_mean": json_number(value),
        "kl_interval": [json_number(low), json_number(high)],
        "perplexity_ratio": json_number(one.perplexity_ratio.value),
        "top1_agreement": json_number(one.top1_agreement.value),
        "prompts": one.prompts,
        "positions": one.positions,
    }
