"""What holds for every test."""

from hypothesis import settings

# Two shared cores can be slow for a moment; an example that takes long is no failure.
settings.register_profile("quantwatch", deadline=None)
settings.load_profile("quantwatch")
