"""Pure decisions: a Divergence and limits in, a verdict with reasons out."""
