"""Secrets are named in the file and never shown: not in messages, not in the settings."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.config.secrets import SecretRef, secret_ref, secrets_of
from quantwatch.errors import ConfigError, InputError

SECRET = "sk-live-4f9c2b7d"  # noqa: S105, made up, and looked for in every message
GOOD = """\
schema: 1
baseline:
  url: http://fp16.test:8000
targets:
  - name: node-a
    url: http://a.test:8000
    scheme: int8
    pool: llama
pools: {llama: {}}
task_sets: {math: {}}
"""
BASELINE = "  url: http://fp16.test:8000\n"
NODE = "    pool: llama\n"
TARGETS = GOOD[GOOD.index("targets:") : GOOD.index("pools:")]
END = "task_sets: {math: {}}\n"


def load(text: str, folder: Path) -> Settings:
    file = folder / "quantwatch.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, shipped={"math": Path("math.yaml")})


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


LITERALS = {
    "key of the baseline": (BASELINE, f"{BASELINE}  api_key: {SECRET}\n", "4: baseline.api_key: "),
    "key of a target": (NODE, f"{NODE}    api_key: {SECRET}\n", "9: targets[0].api_key: "),
    "key as a list": (BASELINE, f"{BASELINE}  api_key: [{SECRET}]\n", "4: baseline.api_key: "),
    "key as a block": (BASELINE, f"{BASELINE}  api_key: {{value: {SECRET}}}\n", "4: baseline.api_key: "),
    "place without a name": (BASELINE, f"{BASELINE}  api_key: '{SECRET}:env'\n", "4: baseline.api_key: "),
    "misspelt place": (BASELINE, f"{BASELINE}  api_key: evn:{SECRET}\n", "4: baseline.api_key: "),
    "signing secret": (END, f"{END}gateway: {{signing_secret: {SECRET}}}\n", "11: gateway.signing_secret: "),
    "authorization header": (
        BASELINE,
        f"{BASELINE}  headers: {{Authorization: Bearer {SECRET}}}\n",
        "4: baseline.headers: the header Authorization looks like a secret",
    ),
    "key header": (
        BASELINE,
        f"{BASELINE}  headers: {{X-Api-Key: {SECRET}}}\n",
        "4: baseline.headers: the header X-Api",
    ),
    "token header": (
        NODE,
        f"{NODE}    headers: {{x-auth-token: {SECRET}}}\n",
        "9: targets[0].headers: the header x-au",
    ),
    "cookie": (BASELINE, f"{BASELINE}  headers: {{Cookie: {SECRET}}}\n", "4: baseline.headers: the header Cookie"),
}


@pytest.mark.parametrize(("old", "new", "start"), LITERALS.values(), ids=LITERALS.keys())
def test_a_literal_secret_is_refused_with_its_place(old: str, new: str, start: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(edited(old, new), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'quantwatch.yaml'}:{start}")


@pytest.mark.parametrize(("old", "new", "start"), LITERALS.values(), ids=LITERALS.keys())
def test_a_literal_secret_is_never_echoed(old: str, new: str, start: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(edited(old, new), tmp_path)
    assert SECRET not in str(caught.value), start


@pytest.mark.parametrize(("old", "new", "start"), LITERALS.values(), ids=LITERALS.keys())
def test_the_refusal_says_how_a_secret_is_given(old: str, new: str, start: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"use env:NAME or file:/path"):
        load(edited(old, new), tmp_path)
    assert start


def test_a_number_for_a_key_is_not_echoed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(edited(BASELINE, BASELINE + "  api_key: 4711471147\n"), tmp_path)
    assert "4711" not in str(caught.value)


def test_a_secret_under_a_misspelt_key_is_not_echoed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"baseline\.apikey: unknown key; did you mean api_key\?") as caught:
        load(edited(BASELINE, f"{BASELINE}  apikey: {SECRET}\n"), tmp_path)
    assert SECRET not in str(caught.value)


def test_a_secret_beside_another_fault_is_not_echoed(tmp_path: Path) -> None:
    text = edited(BASELINE, f"  url: nowhere\n  api_key: {SECRET}\n").replace("int8", "int3")
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path)
    assert len(caught.value.problems) == 3
    assert SECRET not in str(caught.value)


MISPLACED = {
    "headers as text": (BASELINE, f"{BASELINE}  headers: 'Authorization: {SECRET}'\n"),
    "headers as a list": (BASELINE, f"{BASELINE}  headers: [Authorization, {SECRET}]\n"),
    "header with a block": (BASELINE, f"{BASELINE}  headers: {{X-A: {{value: {SECRET}}}}}\n"),
    "baseline as a list": (f"baseline:\n{BASELINE}", f"baseline: [{{api_key: {SECRET}}}]\n"),
    "targets as a mapping": (TARGETS, f"targets: {{api_key: {SECRET}}}\n"),
    "password in an address": (BASELINE, f"  url: ftp://user:{SECRET}@fp16.test\n"),
}


@pytest.mark.parametrize(("old", "new"), MISPLACED.values(), ids=MISPLACED.keys())
def test_a_secret_inside_a_value_of_the_wrong_shape_is_not_echoed(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(edited(old, new), tmp_path)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("header", ["X-Client-Secret", "X-Password"])
def test_a_header_that_is_named_after_a_secret_is_refused(header: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(edited(BASELINE, f"{BASELINE}  headers: {{{header}: {SECRET}}}\n"), tmp_path)


def test_a_plain_header_is_taken_as_it_is(tmp_path: Path) -> None:
    settings = load(edited(BASELINE, BASELINE + "  headers: {X-Team: inference}\n"), tmp_path)
    assert settings.baseline.headers == {"X-Team": "inference"}


@pytest.mark.parametrize("header", ["Authorization", "X-Team"])
def test_a_header_that_names_a_secret_becomes_a_reference(header: str, tmp_path: Path) -> None:
    settings = load(edited(BASELINE, f"{BASELINE}  headers: {{{header}: env:TOKEN}}\n"), tmp_path)
    assert settings.baseline.headers == {header: SecretRef("env", "TOKEN")}


def test_env_resolves_to_the_variable() -> None:
    assert SecretRef("env", "NODE_KEY").resolve({"NODE_KEY": SECRET}) == SECRET


def test_env_resolves_from_the_real_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTWATCH_TEST_KEY", SECRET)
    assert SecretRef("env", "QUANTWATCH_TEST_KEY").resolve() == SECRET


def test_file_resolves_to_the_content_without_the_newline(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n", encoding="utf-8")
    assert SecretRef("file", str(tmp_path / "key")).resolve() == SECRET


@pytest.mark.parametrize("environ", [{}, {"NODE_KEY": ""}])
def test_a_variable_that_is_not_set_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(InputError, match="the environment variable NODE_KEY is not set or empty"):
        SecretRef("env", "NODE_KEY").resolve(environ)


def test_other_variables_are_not_told() -> None:
    with pytest.raises(InputError) as caught:
        SecretRef("env", "NODE_KEY").resolve({"OTHER_KEY": SECRET})
    assert SECRET not in str(caught.value)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda path: path.unlink(missing_ok=True), "cannot be read: FileNotFoundError"),
    "folder": (lambda path: path.mkdir(), "cannot be read: IsADirectoryError"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe" + SECRET.encode()), "cannot be read: UnicodeDecodeError"),
    "empty": (lambda path: path.write_text("\n"), "is empty"),
}


@pytest.mark.parametrize(("make", "words"), FILES.values(), ids=FILES.keys())
def test_a_secret_file_that_cannot_be_used_is_named(make: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    make(tmp_path / "key")
    with pytest.raises(InputError) as caught:
        SecretRef("file", str(tmp_path / "key")).resolve()
    assert str(caught.value) == f"the secret file {tmp_path / 'key'} {words}"


@pytest.mark.parametrize(("text", "ref"), [("env:A", SecretRef("env", "A")), ("file:/a:b", SecretRef("file", "/a:b"))])
def test_a_reference_is_read_and_written_alike(text: str, ref: SecretRef) -> None:
    assert secret_ref(text) == ref
    assert str(ref) == text


def test_a_reference_stays_a_reference() -> None:
    assert secret_ref(SecretRef("env", "A")) == SecretRef("env", "A")


@pytest.mark.parametrize("text", ["", "env:", "file:", "ENV:A", "A", "vault:A", None, 5])
def test_what_is_no_reference_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="secrets are not written here"):
        secret_ref(text)


WITH_SECRETS = (
    GOOD.replace(BASELINE, BASELINE + "  api_key: env:QUANTWATCH_TEST_KEY\n").replace(
        NODE, NODE + "    api_key: file:FOLDER/key\n"
    )
    + "gateway: {driver: webhook, url: 'http://g.test', signing_secret: env:QUANTWATCH_TEST_SIGN}\n"
)


@pytest.fixture
def with_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose secrets can all be fetched; each has SECRET in its value."""
    monkeypatch.setenv("QUANTWATCH_TEST_KEY", f"{SECRET}-1")
    monkeypatch.setenv("QUANTWATCH_TEST_SIGN", f"{SECRET}-2")
    (tmp_path / "key").write_text(f"{SECRET}-3", encoding="utf-8")
    return load(WITH_SECRETS.replace("FOLDER", str(tmp_path)), tmp_path)


def test_every_secret_is_listed_with_its_key(with_secrets: Settings) -> None:
    places = [path for path, _ in secrets_of(with_secrets)]
    assert places == ["baseline.api_key", "targets[0].api_key", "gateway.signing_secret"]


def test_every_listed_secret_resolves(with_secrets: Settings) -> None:
    assert [ref.resolve() for _, ref in secrets_of(with_secrets)] == [f"{SECRET}-1", f"{SECRET}-3", f"{SECRET}-2"]


@pytest.mark.parametrize("show", [repr, str, Settings.model_dump, lambda s: f"{s!r:>10}", lambda s: [*s]])
def test_settings_never_show_a_resolved_secret(show: Callable[[Settings], object], with_secrets: Settings) -> None:
    assert all(SECRET in ref.resolve() for _, ref in secrets_of(with_secrets))
    assert SECRET not in str(show(with_secrets))


def test_settings_cannot_be_changed(with_secrets: Settings) -> None:
    with pytest.raises(ValueError, match="frozen"):
        with_secrets.probe.in_flight = 5  # type: ignore[misc]
