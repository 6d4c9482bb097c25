"""Quantization in plain view: a real model made worse, and better, by the recipes people use."""
