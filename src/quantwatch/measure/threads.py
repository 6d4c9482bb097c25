"""How much of the machine torch may take."""

import contextlib

import torch


def one_thread() -> None:
    """Keep torch to one thread within and between operations: the node beside us needs the others.

    CUDA is never touched: every tensor is made on the CPU.
    """
    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # can be set once only, and before any parallel work
        torch.set_num_interop_threads(1)
