"""YAML files in, frozen settings out; every error names file, line, key and the fix."""
