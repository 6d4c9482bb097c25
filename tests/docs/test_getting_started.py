"""docs/getting-started.md: its configurations are valid and say what the steps around them tell."""

import math
import re
from pathlib import Path

import pytest
import yaml

from quantwatch.cli import exit_codes
from quantwatch.cli.main import main
from quantwatch.config.advice import advice
from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.demo.limits import CRITICAL, WARN
from quantwatch.flow.decision import Brake, Ruling
from quantwatch.prompts.load import shipped_sets
from support.typed import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "getting-started.md").read_text(encoding="utf-8")
MEASUREMENT = (DOCS / "measurement.md").read_text(encoding="utf-8")
CONFIGURATIONS = [block for block in blocks(TEXT, "yaml") if block.startswith("schema:")]
EACH = pytest.mark.parametrize("number", range(len(CONFIGURATIONS)))


def written(tmp_path: Path, number: int) -> Path:
    file = tmp_path / "quantwatch.yaml"
    file.write_text(CONFIGURATIONS[number], encoding="utf-8")
    return file


def settings(tmp_path: Path, number: int) -> Settings:
    return load_settings(written(tmp_path, number), shipped=shipped_sets())


def test_every_yaml_block_is_a_configuration_or_a_scrape() -> None:
    others = [block for block in blocks(TEXT, "yaml") if block not in CONFIGURATIONS]
    assert [list(yaml.safe_load(block)) for block in others] == [["scrape_configs"]]


@EACH
def test_a_configuration_passes_the_check(tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(written(tmp_path, number))]) == 0
    assert "quantwatch.yaml is fine" in " ".join(capsys.readouterr().out.split())


@EACH
def test_a_configuration_needs_no_advice(tmp_path: Path, number: int) -> None:
    assert advice(settings(tmp_path, number)) == []


def test_the_steps_go_from_observing_to_acting(tmp_path: Path) -> None:
    modes = [settings(tmp_path, number).pools["llama"].mode.value for number in range(len(CONFIGURATIONS))]
    assert modes == ["observe", "dry_run", "enforce"]


def test_the_trial_is_for_one_node_with_a_fallback(tmp_path: Path) -> None:
    trial = settings(tmp_path, 1)
    assert len(trial.targets) == 1
    assert trial.pools["llama"].fallback == "baseline"


def test_the_decisions_shown_are_ruled_and_held_back_by_words_of_the_product() -> None:
    (shown,) = (block for block in blocks(TEXT, "text") if "stopped by" in block)
    rulings = re.findall(r" isolate +(\w+) ", shown)
    column = shown.splitlines()[0].index("stopped by")
    brakes = re.findall(r"\w+", " ".join(line[column:] for line in shown.splitlines()[2:]))
    assert rulings == [Ruling.WOULD_HAVE, Ruling.SUPPRESSED]
    assert set(brakes) == {Brake.DRY_RUN, Brake.YARDSTICK, Brake.LAST_BACKEND, Brake.FALLBACK}


def test_the_limits_of_the_recipe_are_taken_and_follow_from_its_numbers(tmp_path: Path) -> None:
    (written_limits,) = (block for block in blocks(MEASUREMENT, "yaml") if "perplexity_ratio" in block)
    whole = yaml.safe_load(CONFIGURATIONS[0]) | yaml.safe_load(written_limits)
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    assert load_settings(file, shipped=shipped_sets()).task_sets["math"].limits is not None
    limits = yaml.safe_load(written_limits)["task_sets"]["math"]["limits"]
    kl, ratio, top1 = map(float, re.findall(r"(\d\.\d+) \((?:mean KL|perplexity ratio|top-1)\)", MEASUREMENT))
    for name, times in (("warn", WARN), ("critical", CRITICAL)):
        assert limits["kl_mean"][name] == pytest.approx(times * kl)
        assert limits["perplexity_ratio"][name] == pytest.approx(math.exp(times * math.log(ratio)), abs=5e-4 + 1e-9)
        assert limits["top1_agreement"][name] == pytest.approx(1 - times * (1 - top1))


def test_the_scrape_asks_where_the_first_configuration_listens(tmp_path: Path) -> None:
    (scrape,) = (yaml.safe_load(block) for block in blocks(TEXT, "yaml") if block.startswith("scrape_configs"))
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == [settings(tmp_path, 0).server.listen]


def test_the_cost_is_what_the_check_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check-config", str(written(tmp_path, 0))])
    (told,) = re.findall(r"about [\d,]+ probe tokens a day", " ".join(capsys.readouterr().out.split()))
    assert told in TEXT


def test_every_exit_code_is_told() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE)}
    assert rows == {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
