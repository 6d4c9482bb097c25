"""The templates of docs/gateways.md: each can be used, tells an isolated node from others, and makes what it should."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.act.template import Node, Template

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gateways.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"```jinja\n\{# ([\w-]+): .*? #\}\n(.*?)```", PAGE, re.DOTALL))
NODES = [Node("a", "chat", "llama", "http://10.0.0.1:8000"), Node("b", "chat", "llama", "http://10.0.0.2:8000")]


def written(recipe: str, *isolated: str) -> str:
    return Template(RECIPES[recipe], NODES).text(isolated)


def test_the_page_has_its_recipes() -> None:
    assert set(RECIPES) >= {"nginx", "traefik", "production-stack", "envoy"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_can_be_used(recipe: str) -> None:
    assert written(recipe) != written(recipe, "a") != written(recipe, "a", "b")


def test_nginx_keeps_a_server_and_marks_it_down() -> None:
    assert written("nginx", "a").split() == (
        ["upstream", "llm", "{", "server", "10.0.0.1:8000", "down;", "server", "10.0.0.2:8000;", "}"]
    )


def test_traefik_leaves_a_server_out() -> None:
    (balancer,) = yaml.safe_load(written("traefik", "a"))["http"]["services"].values()
    assert balancer["loadBalancer"]["servers"] == [{"url": "http://10.0.0.2:8000"}]


def test_the_production_stack_gets_json_without_the_node() -> None:
    whole, less = json.loads(written("production-stack")), json.loads(written("production-stack", "a"))

    assert whole["static_backends"] == "http://10.0.0.1:8000,http://10.0.0.2:8000"
    assert (less["static_backends"], less["static_models"]) == ("http://10.0.0.2:8000", "llama")


def test_envoy_drains_and_never_panics() -> None:
    (resource,) = yaml.safe_load(written("envoy", "a"))["resources"]
    (group,) = resource["endpoints"]
    told: list[Any] = [
        (one["endpoint"]["address"]["socket_address"]["address"], one["health_status"]) for one in group["lb_endpoints"]
    ]

    assert told == [("10.0.0.1", "DRAINING"), ("10.0.0.2", "HEALTHY")]
    assert "UNHEALTHY" not in RECIPES["envoy"]
