"""The lab node: a real, really quantized language model behind vLLM's dialect, for rehearsals and for our own tests."""
