"""Lets `python -m quantwatch` do what `quantwatch` does."""

from quantwatch.cli.main import run

if __name__ == "__main__":
    run()
