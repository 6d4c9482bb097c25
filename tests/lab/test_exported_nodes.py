"""What `quantwatch toolkit export` predicts is what `quantwatch compare` measures on a real vLLM node (marker `vllm`).

docs/toolkit.md says how to start the nodes. QUANTWATCH_LAB_BASELINE is the address of the full-precision node,
QUANTWATCH_LAB_EXPORTED that of one that serves the exported folder, and QUANTWATCH_LAB_PREDICTION the file that the
export wrote with --json. Where one is not set the test is skipped.
"""

import json
import os
from pathlib import Path

import pytest

from quantwatch.cli.main import main

pytestmark = pytest.mark.vllm


def given(name: str) -> str:
    value = os.environ.get(f"QUANTWATCH_LAB_{name}")
    if not value:
        pytest.skip(f"QUANTWATCH_LAB_{name} is not set")
    return value


def test_a_node_measures_what_the_export_has_predicted(tmp_path: Path) -> None:
    asked = json.loads(Path(given("PREDICTION")).read_text(encoding="utf-8"))
    out = tmp_path / "out.json"
    nodes = ["--baseline", given("BASELINE"), "--node", f"exported={given('EXPORTED')}", "--timeout", "600"]
    drawn = ["--task-set", asked["evaluate"], "--prompts", str(asked["draw"]), "--seed", str(asked["seed"])]

    main(["compare", *nodes, *drawn, "--continuation-tokens", str(asked["continuation_tokens"]), "--json", str(out)])

    (measured,) = json.loads(out.read_text(encoding="utf-8"))["targets"][0]["task_sets"]
    predicted = asked["prediction"]
    assert measured["positions"] == predicted["positions"]
    assert measured["kl_mean"] == pytest.approx(predicted["kl_mean"]["value"], rel=0.1)
    assert measured["perplexity_ratio"] == pytest.approx(predicted["perplexity_ratio"]["value"], rel=0.1)
