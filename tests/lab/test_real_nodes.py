"""Against real vLLM nodes (marker `vllm`, out of the default gate): see docs/measured.md for how to start them.

The addresses come from the environment: QUANTWATCH_LAB_BASELINE, _OUTLIER, _SMOOTH, _INT4, _NAN. A node without an
address is skipped.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from quantwatch.cli.main import main
from support.recordings import DATA

pytestmark = pytest.mark.vllm

SEQUENCES = DATA / "pair" / "sequences.json"


def address(name: str) -> str:
    url = os.environ.get(f"QUANTWATCH_LAB_{name}")
    if not url:
        pytest.skip(f"QUANTWATCH_LAB_{name} is not set")
    return url


def compared(tmp_path: Path, node: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "out.json"
    fixed = ["compare", "--baseline", address("BASELINE"), "--node", f"node={node}", "--json", str(out)]
    code = main([*fixed, *arguments])
    return code, json.loads(out.read_text())["targets"][0]


@pytest.mark.parametrize(
    ("name", "kl", "top1", "exact"),
    [("OUTLIER", 0.334, 0.751, True), ("SMOOTH", 0.0231, 0.924, False), ("INT4", 0.356, 0.722, True)],
)
def test_recorded_sequences_give_the_recorded_figures(
    tmp_path: Path, name: str, kl: float, top1: float, exact: bool
) -> None:
    """INT8 figures depend on the kernel: the recordings are of a CPU with AVX2 alone (docs/measured.md).

    The SmoothQuant weights are made anew where the lab is built, with the activations of that CPU: 0.0220 and 0.0229
    were seen.
    """
    code, target = compared(tmp_path, address(name), "--sequences", str(SEQUENCES), "--positions", "all")

    (one,) = target["task_sets"]
    assert one["positions"] == 342
    assert one["kl_mean"] == pytest.approx(kl, rel=0.03 if exact else 0.1)
    assert one["top1_agreement"] == pytest.approx(top1, abs=0.001 if exact else 0.01)
    assert one["perplexity_baseline"] == pytest.approx(3.777, rel=0.001)
    assert (target["quality"], code) == ("degraded", 1)


def test_a_nan_node_is_corrupted(tmp_path: Path) -> None:
    code, target = compared(tmp_path, address("NAN"), "--task-set", "math", "--prompts", "4")

    assert (target["quality"], code) == ("corrupted", 1)


def test_the_baseline_against_itself_is_the_same_server(tmp_path: Path) -> None:
    code, target = compared(tmp_path, address("BASELINE"), "--task-set", "math", "--prompts", "4")

    assert (target["quality"], code) == ("invalid", 2)
    assert "same server" in target["reasons"][0]


def test_both_modes_see_the_same_node(tmp_path: Path) -> None:
    arguments = ("--task-set", "code", "--prompts", "4", "--continuation-tokens", "32")
    _, scored = compared(tmp_path, address("INT4"), *arguments, "--mode", "prompt_scoring")
    _, tokens = compared(tmp_path, address("INT4"), *arguments, "--mode", "one_token")

    first, second = scored["task_sets"][0], tokens["task_sets"][0]
    assert first["positions"] == second["positions"]
    assert second["kl_mean"] == pytest.approx(first["kl_mean"], rel=0.05)
