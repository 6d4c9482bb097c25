"""Runs inside a vLLM server, beside its sampler: counts rows of logits that are broken, and shows the counts.

It imports nothing of quantwatch but itself, changes no logits, and never raises into the engine.
"""
