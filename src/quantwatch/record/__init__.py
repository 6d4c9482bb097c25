"""Keeps what must outlive a run."""
