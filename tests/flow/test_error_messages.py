"""The exception tree: who, what, and whether asking again can help."""

import pytest

from quantwatch import errors
from quantwatch.errors import (
    ConfigError,
    InputError,
    NodeBusy,
    NodeTimeout,
    NodeUnreachable,
    OverCap,
    ProbeError,
    Problem,
    PromptError,
    QuantwatchError,
)

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]

PLACES = [
    (Problem("a.yaml", 7, "baseline.url", "no"), "a.yaml:7: baseline.url: no"),
    (Problem("a.yaml", None, "baseline.url", "no"), "a.yaml: baseline.url: no"),
    (Problem("a.yaml", 7, "", "no"), "a.yaml:7: no"),
    (Problem("a.yaml", None, "", "no"), "a.yaml: no"),
]


@pytest.mark.parametrize(("problem", "text"), PLACES)
def test_a_problem_says_where_it_is(problem: Problem, text: str) -> None:
    assert str(problem) == text


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_one_root(kind: type[Exception]) -> None:
    assert issubclass(kind, QuantwatchError)


@pytest.mark.parametrize("kind", [ConfigError, PromptError])
def test_faults_of_files_are_the_users_to_correct(kind: type[Exception]) -> None:
    assert issubclass(kind, InputError)


def test_a_configuration_error_tells_all_its_problems() -> None:
    error = ConfigError([Problem("a", 1, "x", "no"), Problem("a", 2, "y", "neither")])
    assert str(error) == "a:1: x: no\na:2: y: neither"
    assert len(error.problems) == 2


def test_a_probe_error_names_the_node_the_reason_and_the_advice() -> None:
    assert str(NodeBusy("HTTP 429", node="gpu-7", advice="Wait")) == "gpu-7: HTTP 429. Wait"


def test_a_probe_error_without_advice_ends_with_its_reason() -> None:
    assert str(NodeBusy("HTTP 429", node="gpu-7")) == "gpu-7: HTTP 429"


def test_only_an_unreachable_node_is_asked_again() -> None:
    again = [kind for kind in ALL if issubclass(kind, ProbeError) and kind.retryable]
    assert again == [NodeUnreachable]


def test_a_time_out_is_not_asked_again() -> None:
    assert not NodeTimeout("no answer in 120 s", node="n").retryable


@pytest.mark.parametrize("allowed", [20, None])
def test_over_the_cap_says_what_is_allowed(allowed: int | None) -> None:
    error = OverCap("k 50 is over the cap", node="n", allowed=allowed)
    assert error.allowed == allowed
    assert "--max-logprobs" in str(error)
