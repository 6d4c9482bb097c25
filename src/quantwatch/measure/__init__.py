"""Pure mathematics on Distributions: KL bounds, perplexity, agreement, intervals."""
