"""A folder and a recipe -> a model that is ready to serve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from quantwatch.flow.prompt import Prompt
from quantwatch.prompts.load import load_set, shipped_folder
from quantwatch.toolkit import kv_cache
from quantwatch.toolkit import model as models
from quantwatch.toolkit.capture import Inputs, capture, token_ids
from quantwatch.toolkit.fake_quant import quantize
from quantwatch.toolkit.model import Loaded, load
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.recipe import Recipe, Scheme
from quantwatch.toolkit.smoothing import smooth


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model with its recipe carried out."""

    model: nn.Module
    tokenizer: Any
    recipe: Recipe

    @property
    def needs_cache(self) -> bool:
        """Whether scoring must go through a cache too, since storing changes keys and values."""
        return self.recipe.kv is not None

    def new_cache(self) -> Any:
        """An empty key-value cache for one batch of texts, of the recipe's precision."""
        return kv_cache.new_cache(self.model.config, self.recipe.kv)

    def logits(self, ids: Tensor, cache: Any = None, *, kept: Tensor | None = None) -> Tensor:
        """Raw next-token scores: (batch, m, vocabulary) for ids (batch, n) that follow on what the cache holds.

        cache: None scores whole texts and keeps nothing; the recipe's rounding of keys and values holds there too.
        kept: (m,) positions among the n, None for all of them.
        """
        if cache is None and self.needs_cache:
            cache = self.new_cache()
        return models.logits(self.model, ids, cache, kept=kept)


def prepare(
    folder: Path, recipe: Recipe, *, calibration: Sequence[Prompt] | None = None, tell: Callable[[str], None]
) -> Prepared:
    """Load, inject outliers, smooth and quantize, in this order; calibrate before what needs it.

    calibration: prompts for smoothing and static scales, None for the shipped ones. tell: hears what is being done.
    Raises InputError for a folder, a recipe or prompts that cannot be used.
    """
    tell(f"loading {folder}")
    loaded = load(folder)
    if recipe.outliers is not None:
        inject_outliers(loaded.model, recipe.outliers, seed=recipe.seed)
    prompts = _prompts(calibration) if recipe.calibrates else ()
    if recipe.smooth is not None:
        smooth(loaded.model, _captured(loaded, prompts, tell=tell), alpha=recipe.smooth)
    static = _captured(loaded, prompts, tell=tell) if recipe.scheme is Scheme.W8A8_STATIC else None
    quantize(loaded.model, recipe.scheme, inputs=static, observer=recipe.observer)
    if recipe.scheme in (Scheme.W8A8, Scheme.W8A8_STATIC):
        _attend_steadily(loaded.model)
    return Prepared(loaded.model, loaded.tokenizer, recipe)


def _attend_steadily(model: Any) -> None:
    """Let a prefix get the same numbers alone and within a longer text.

    The default kernel sums in an order that depends on how many positions are asked for. A last bit that differs flips
    an int8 code in the next linear, and behind an outlier a flipped code moves log-probabilities by nats.
    """
    model.set_attn_implementation("eager")


def calibration_prompts() -> tuple[Prompt, ...]:
    """The shipped prompts for calibration; none of them is in a task set."""
    return load_set(shipped_folder() / "calibration" / "general.yaml").prompts


def _prompts(given: Sequence[Prompt] | None) -> tuple[Prompt, ...]:
    return calibration_prompts() if given is None else tuple(given)


def _captured(loaded: Loaded, prompts: Sequence[Prompt], *, tell: Callable[[str], None]) -> Mapping[str, Inputs]:
    tell(f"calibrating on {len(prompts)} prompts")
    return capture(loaded.model, [token_ids(loaded.tokenizer, prompt) for prompt in prompts])
