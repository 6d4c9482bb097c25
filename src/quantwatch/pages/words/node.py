"""Words of a node's page."""

WORDS: dict[str, tuple[str, str]] = {
    "node.title": ("Node", "节点"),
}
