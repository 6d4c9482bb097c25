"""What each driver can do, told without making one."""

from collections.abc import Mapping

from quantwatch.act.apisix import ApisixDriver
from quantwatch.act.contract import Abilities
from quantwatch.act.dry_run import DryRun
from quantwatch.act.file import FileDriver
from quantwatch.act.haproxy import HaproxyDriver
from quantwatch.act.kong import KongDriver
from quantwatch.act.kubernetes import KubernetesDriver
from quantwatch.act.litellm import LitellmDriver
from quantwatch.act.package import package
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import able

KNOWN: Mapping[str, Abilities] = {
    "apisix": ApisixDriver.abilities,
    "dry_run": DryRun.abilities,
    "file": FileDriver.abilities,
    "haproxy": HaproxyDriver.abilities,
    "kong": KongDriver.abilities,
    "kubernetes": KubernetesDriver.abilities,
    "litellm": LitellmDriver.abilities,
    "sglang_router": SglangRouter.abilities,
    "verdict": VerdictDriver.abilities,
    "vllm_router": VllmRouter.abilities,
}
"""By name in the configuration; those of the webhook depend on its settings."""


def abilities_of(driver: str, *, state_url: bool) -> Abilities:
    """A driver's abilities by its name. state_url: whether there is one.

    Raises InputError for one that a package should bring and does not.
    """
    if driver == "webhook":
        return able(reads_back=state_url)
    return KNOWN[driver] if driver in KNOWN else package(driver).abilities


def said(abilities: Abilities) -> str:
    """Abilities in words."""
    if not abilities.acts:
        return "changes nothing"
    reads = "reads back" if abilities.reads_back else "cannot read back, so nothing is ever verified"
    proven = "proven against the real program" if abilities.proven else "not proven: rehearse it before you rely on it"
    return f"{reads}; {proven}"
