"""Requests that are answered with an error, in the words and shape of vLLM 0.32."""

from typing import Any

KINDS = {400: "BadRequestError", 404: "NotFoundError", 405: "MethodNotAllowedError", 500: "InternalServerError"}


class Refused(Exception):
    """A request that gets no answer. param: the field at fault, where it is one."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status

    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        kind = KINDS.get(self.status, "BadRequestError")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}


def not_a_number() -> Refused:
    """What vLLM says when a log-probability is NaN: its JSON encoder refuses."""
    return Refused("Out of range float values are not JSON compliant")


def unknown_model(asked: str, *, served: str) -> Refused:
    """A model that is not served here."""
    return Refused(f"The model `{asked}` does not exist. Valid aliases: {served}.", param="model", status=404)


def over_cap(name: str, *, spoken: str, asked: int, allowed: int) -> Refused:
    """More log-probabilities than the node gives."""
    said = f"Requested {spoken} logprobs of {asked}, which is greater than max allowed: {allowed}"
    return Refused(f"{said} (parameter={name}, value={asked})", param=name)


def too_long(prompt: int, *, generated: int, limit: int) -> Refused:
    """A prompt that does not fit, alone or with the tokens to be generated."""
    known = f"This model's maximum context length is {limit} tokens. However, "
    if prompt > limit:
        said = f"your prompt contains {prompt} input tokens, which exceeds this limit even without any output tokens."
        rest = "Please reduce the length of the input prompt."
    else:
        said = (
            f"you requested {generated} output tokens and your prompt contains {prompt} input tokens, "
            f"for a total of {prompt + generated} tokens."
        )
        rest = "Please reduce the length of the input prompt or the number of requested output tokens."
    return Refused(f"{known}{said} {rest} (parameter=input_tokens, value={prompt})", param="input_tokens")
