"""A recipe is light data that tells about itself."""

import subprocess
import sys

import pytest

from quantwatch.toolkit.recipe import KvBits, Observer, Recipe, Scheme

TOLD = [
    (Recipe(), "fp32"),
    (Recipe(Scheme.W8A8, outliers=100.0, smooth=0.5), "w8a8, outliers x100, smoothed 0.5"),
    (Recipe(Scheme.W4_G64, kv=KvBits.INT4), "w4-g64, kv int4"),
    (Recipe(Scheme.W8A8_STATIC, outliers=2.5), "w8a8-static (minmax), outliers x2.5"),
    (Recipe(Scheme.W8A8_STATIC, observer=Observer.HISTOGRAM), "w8a8-static (histogram)"),
    (Recipe(Scheme.W8, observer=Observer.HISTOGRAM), "w8"),
]


@pytest.mark.parametrize(("recipe", "told"), TOLD)
def test_a_recipe_describes_itself(recipe: Recipe, told: str) -> None:
    assert recipe.describe() == told


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        (Recipe(), False),
        (Recipe(Scheme.W8A8, outliers=100.0, kv=KvBits.INT8), False),
        (Recipe(smooth=0.0), True),
        (Recipe(Scheme.W8A8_STATIC), True),
    ],
)
def test_smoothing_and_static_scales_need_calibration(recipe: Recipe, wanted: bool) -> None:
    assert recipe.calibrates is wanted


def loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603, our own program
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["quantwatch.toolkit.recipe", "quantwatch.toolkit.source"])
def test_what_the_command_line_reads_first_is_light(module: str) -> None:
    assert loaded_by(module) & {"torch", "transformers", "numpy", "tokenizers"} == set()


@pytest.mark.parametrize("command", ["serve", "demo"])
@pytest.mark.parametrize("package", ["transformers", "gguf"])
def test_without_the_extra_packages_a_command_says_what_to_install(command: str, package: str) -> None:
    program = f"""
import sys
sys.modules["{package}"] = None
from quantwatch.cli.main import run
run(["{command}", "--model", "no-such-folder"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603, our own program
    said = f"quantwatch {command} needs the extra packages of the lab: pip install 'quantwatch[demo]'\n"
    assert (done.returncode, done.stderr) == (3, said)


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_the_help_shows_how_the_extra_packages_are_installed(command: str) -> None:
    arguments = [sys.executable, "-m", "quantwatch", command, "--help"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)  # noqa: S603, our own command
    assert "pip install 'quantwatch[demo]'" in " ".join(done.stdout.split())


def test_without_the_extra_packages_the_first_module_that_needs_them_says_so() -> None:
    program = """
import sys
sys.modules["transformers"] = None
from quantwatch.errors import InputError
try:
    import quantwatch.toolkit.prepare
except InputError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603, our own program
    assert done.stdout == "quantwatch serve needs the extra packages of the lab: pip install 'quantwatch[demo]'\n"
