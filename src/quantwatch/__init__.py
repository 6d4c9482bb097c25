"""quantwatch: the quality watchdog for quantized LLM nodes."""

__version__ = "0.1.0"
