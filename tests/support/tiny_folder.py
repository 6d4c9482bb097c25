"""A tiny model on disk with a prompts file beside it, for the commands of the toolkit."""

from pathlib import Path

from support.tiny_llama import tiny_llama

FEW = """\
schema: 1
name: {name}
description: Prompts of a few words.
license: Apache-2.0
prompts:
"""
TEXTS = {
    "few": ["The quick brown fox jumps over the lazy dog", "SELECT name FROM users WHERE id = 3", "def add(a, b)"],
    "others": ["seven wizards count their golden coins", "return a + b", "the numbers of Paris"],
}


def tiny_folder(folder: Path) -> Path:
    """A random Llama with few.yaml and others.yaml beside its weights; returns the folder."""
    tiny_llama(folder)
    for name, texts in TEXTS.items():
        head = "language: en, length: short, tags: [t]"
        lines = [f"  - {{id: {name}-{i}, {head}, prompt: '{text}'}}" for i, text in enumerate(texts)]
        (folder / f"{name}.yaml").write_text(FEW.format(name=name) + "\n".join(lines) + "\n", encoding="utf-8")
    return folder
