"""How configuration names pods of Kubernetes."""

import re

SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
POD = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_WORD = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LABEL = rf"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?{_WORD}"
SELECTOR = re.compile(rf"{LABEL}={_WORD}(,{LABEL}={_WORD})*")


def pod_of(gateway_name: str, service: str | None) -> tuple[str, str]:
    """A gateway_name, `POD` or `SERVICE:POD`, as service and pod; a pod is a name, or labels `KEY=VALUE,...`.

    service: of those that name none. Raises ValueError with a sentence for what cannot be one.
    """
    home, colon, pod = gateway_name.partition(":")
    if not colon:
        home, pod = service or "", gateway_name
    if not (POD.fullmatch(pod) or SELECTOR.fullmatch(pod)):
        raise ValueError(f"{gateway_name!r} is no pod: write its name, or labels that it alone has, KEY=VALUE,...")
    if not home:
        raise ValueError(f"{gateway_name!r} names no service; write SERVICE:{gateway_name}, or set gateway.service")
    if not SERVICE.fullmatch(home):
        raise ValueError(f"{home!r} is no name of a service")
    return home, pod
