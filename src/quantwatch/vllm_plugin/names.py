"""What the plugin's series are called on the node's own /metrics page, and the environment variables that it heeds."""

ROWS = "quantwatch_vllm_logit_rows"
BROKEN = "quantwatch_vllm_broken_logit_rows"
RUNAWAY = "quantwatch_vllm_runaway_logit_rows"
MAGNITUDE = "quantwatch_vllm_logit_magnitude"

HELP = {
    ROWS: "Rows of logits that passed the sampler.",
    BROKEN: "Rows of logits with NaN, with positive infinity, or with nothing finite at all.",
    RUNAWAY: "Finite rows of logits whose magnitude ran away: the step before numbers break.",
    MAGNITUDE: "Largest magnitude that a row's largest logit had in the latest step.",
}
"""Counters, and MAGNITUDE, which is a gauge."""

ENGINE = "engine"
"""The label of all of them, as vLLM's own series have it: the data-parallel rank."""

FOLDER = "QUANTWATCH_VLLM_FOLDER"
"""Where the engine's processes leave their counts for the server's; made afresh where it is not set."""

SWITCH = "QUANTWATCH_VLLM"
"""`off` leaves the plugin without effect although it is installed."""
