"""Golden prompt files in, PromptSets and draws out."""
