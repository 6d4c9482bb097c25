"""Words of the pages about golden sets."""

WORDS: dict[str, tuple[str, str]] = {
    "sets.title": ("Golden sets", "黄金提示集"),
}
