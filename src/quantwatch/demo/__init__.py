"""The rehearsal: a quantized node goes bad before your eyes, is taken out of traffic, and its cure comes back."""
