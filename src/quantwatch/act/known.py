"""What each driver can do, told without making one."""

from collections.abc import Mapping

from quantwatch.act.contract import Abilities
from quantwatch.act.dry_run import DryRun
from quantwatch.act.file import FileDriver
from quantwatch.act.haproxy import HaproxyDriver
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import able

KNOWN: Mapping[str, Abilities] = {
    "dry_run": DryRun.abilities,
    "file": FileDriver.abilities,
    "haproxy": HaproxyDriver.abilities,
    "sglang_router": SglangRouter.abilities,
    "verdict": VerdictDriver.abilities,
    "vllm_router": VllmRouter.abilities,
}
"""By name in the configuration; those of the webhook depend on its settings."""


def abilities_of(driver: str, *, state_url: bool) -> Abilities | None:
    """A driver's abilities by its name; None for one that is not known here. state_url: whether there is one."""
    return able(reads_back=state_url) if driver == "webhook" else KNOWN.get(driver)


def said(abilities: Abilities) -> str:
    """Abilities in words."""
    if not abilities.acts:
        return "changes nothing"
    reads = "reads back" if abilities.reads_back else "cannot read back, so nothing is ever verified"
    proven = "proven against the real program" if abilities.proven else "not proven: rehearse it before you rely on it"
    shifts = "; shifts traffic by weights" if abilities.weighs else ""
    return f"{reads}{shifts}; {proven}"
