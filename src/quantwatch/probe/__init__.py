"""Asks inference servers; turns their untrusted JSON into Distributions."""
