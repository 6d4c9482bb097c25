"""What vLLM calls in each of its processes before anything else: it makes a way for the counts to the server's page."""

import atexit
import logging
import os
from collections.abc import MutableMapping
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry

from quantwatch.vllm_plugin.names import FOLDER, SWITCH
from quantwatch.vllm_plugin.outlet import FileCollector, made_folder, remove, several

log = logging.getLogger(__name__)

OFF = ("off", "0", "false", "no")


def off(environment: MutableMapping[str, str]) -> bool:
    """Whether an operator has switched the plugin off."""
    return environment.get(SWITCH, "").lower() in OFF


def start(environment: MutableMapping[str, str] = os.environ, registry: CollectorRegistry = REGISTRY) -> None:
    """Show the counts at this process's /metrics page, if it has one. Never raises.

    The first process makes the folder, and its children inherit the variable that names it. The page's owner is the
    first process; in the others the collector is registered for nobody.
    """
    if off(environment) or several(environment):
        return
    try:
        if not environment.get(FOLDER):
            folder = made_folder()
            environment[FOLDER] = str(folder)
            atexit.register(remove, folder, os.getpid())
        registry.register(FileCollector(Path(environment[FOLDER])))
    except Exception:
        # One of the few broad handlers: a plugin must not keep a server from starting.
        log.exception("quantwatch counts no rows of logits: the counts have no way to the /metrics page")
