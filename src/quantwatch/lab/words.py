"""Token ids <-> text, as vLLM writes it: what is half a character waits for its other half."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quantwatch.lab.refused import Refused

HALF = "�"
"""What decoding gives for bytes that are no whole character."""

MOST_CONTEXT = 4
"""Tokens before a piece of a character that may complete it."""

Decode = Callable[[Sequence[int]], str]


class Words:
    """A tokenizer that several threads may use: one call of it at a time, since reading text changes its settings."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._alone: dict[int, str] = {}

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text."""
        with self._lock:
            return list(self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    def conversation(self, messages: Sequence[Mapping[str, Any]], *, begin_answer: bool) -> str:
        """A conversation as the text that the model's chat template makes of it. Raises Refused without a template."""
        if not self._tokenizer.chat_template:
            raise Refused("The model's tokenizer has no chat template", param="messages")
        with self._lock:
            return str(
                self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=begin_answer, tokenize=False)
            )

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of tokens. special: whether special tokens are written out."""
        with self._lock:
            return str(
                self._tokenizer.decode(list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False)
            )

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens as they stand in the vocabulary."""
        with self._lock:
            return list(self._tokenizer.convert_ids_to_tokens(list(ids)))

    def alone(self, token: int) -> str:
        """The text of one token by itself."""
        if token not in self._alone:
            self._alone[token] = self.decode([token])
        return self._alone[token]

    def within(self, token: int, before: Sequence[int]) -> str:
        """The text of one token after others: a last piece gives the whole character, an earlier one nothing."""
        text = self.alone(token)
        if not text.endswith(HALF):
            return text
        for length in range(1, min(len(before), MOST_CONTEXT) + 1):
            context = list(before[-length:])
            whole = self.decode([*context, token])
            if not whole.endswith(HALF):
                return whole.removeprefix(self._clean(context))
        return ""

    def _clean(self, context: list[int]) -> str:
        """The text of the leading tokens that are whole characters."""
        while context and self.alone(context[-1]).endswith(HALF):
            context = context[:-1]
        return self.decode(context) if context else ""

    def stream(self, prompt: Sequence[int]) -> "Stream":
        """The text that grows token by token behind a prompt."""
        return Stream(lambda ids: self.decode(ids, special=False), prompt)


class Stream:
    """Text of generated tokens. Bytes are held back until they are whole characters; special tokens are left out.

    Half a character at the end of the prompt comes out with its other half, and so does what stands before it as far
    as it had to be decoded together: vLLM 0.32 does so (recorded).
    """

    LOOK_BACK = 24

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(prompt[-self._start(prompt) :])
        known = decode(self._ids)
        self._known = "" if known.endswith(HALF) else known
        self._whole = 0 if known.endswith(HALF) else len(self._ids)
        self.text = ""

    def push(self, token: int) -> None:
        """Add a token."""
        self._ids.append(token)
        now = self._decode(self._ids)
        if len(now) <= len(self._known) or now.endswith(HALF):
            return
        self.text += now.removeprefix(self._known)
        self._ids = self._ids[self._whole :]
        self._known = self._decode(self._ids)
        self._whole = len(self._ids)

    def _start(self, prompt: Sequence[int]) -> int:
        """How many tokens of the prompt to begin with: the fewest from 4 that are whole characters."""
        for length in range(4, min(len(prompt) + 1, self.LOOK_BACK)):
            if HALF not in self._decode(prompt[-length:]):
                return length
        return len(prompt)
