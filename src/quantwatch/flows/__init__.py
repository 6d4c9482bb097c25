"""The use cases: each file is one journey through the rooms."""
