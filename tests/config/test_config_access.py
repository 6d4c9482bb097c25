"""Tokens of the admin listener: by name and role, never by value, and none that is useless."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.config.access import callers_token, read_tokens, token_advice
from quantwatch.config.changes import changes, needing_restart
from quantwatch.config.load import load_settings
from quantwatch.config.schema import ListenSettings, Settings
from quantwatch.errors import ConfigError, InputError
from quantwatch.flow.access import Caller, Role

LONG = "0123456789abcdef-"  # gitleaks: made up


def server(**given: Any) -> ListenSettings:
    return ListenSettings.model_validate(given)


def token(name: str, place: object, role: str = "operator") -> dict[str, str]:
    return {"name": name, "role": role, "token": f"file:{place}"}


def write(path: Path, text: str, *, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def loaded(folder: Path, **section: Any) -> Settings:
    file = folder / "quantwatch.yaml"
    content = {
        "schema": 1,
        "baseline": {"url": "http://fp16.test"},
        "targets": [{"name": "a", "url": "http://a.test", "scheme": "int8", "pool": "p"}],
        "pools": {"p": {}},
        "task_sets": {"math": {}},
        "server": section,
    }
    file.write_text(yaml.safe_dump(content))
    return load_settings(file, shipped={"math": Path("math.yaml")})


def test_tokens_are_read_with_name_and_role(tmp_path: Path) -> None:
    files = [write(tmp_path / name, f"{LONG}{name}\n") for name in ("ada", "wall", "admin")]
    found = read_tokens(
        server(admin_token=f"file:{files[2]}", tokens=[token("ada", files[0]), token("wall", files[1], "viewer")])
    )
    assert [one.caller for one in found] == [
        Caller("admin", Role.ADMIN),
        Caller("ada", Role.OPERATOR, named=True),
        Caller("wall", Role.VIEWER, named=True),
    ]
    assert [one.secret for one in found] == [f"{LONG}admin", f"{LONG}ada", f"{LONG}wall"]
    assert LONG not in repr(found)


FAULTY: dict[str, tuple[str | None, str]] = {
    "gone": (None, "cannot be read: FileNotFoundError"),
    "empty": (" \n", "is empty"),
    "short": ("hunter2", "has 7 characters; 16 are the least"),
    "as long as all but one": ("x" * 15, "has 15 characters"),
    "like the admin's": (f"{LONG}admin", "the same token as server.admin_token"),
}


@pytest.mark.parametrize(("content", "said"), FAULTY.values(), ids=FAULTY.keys())
def test_a_token_that_cannot_be_used_is_named_by_its_key_and_never_shown(
    tmp_path: Path, content: str | None, said: str
) -> None:
    admin, mine = write(tmp_path / "admin", f"{LONG}admin"), tmp_path / "ada"
    if content is not None:
        write(mine, content)
    with pytest.raises(InputError) as caught:
        read_tokens(server(admin_token=f"file:{admin}", tokens=[token("ada", mine)]))
    assert str(caught.value).startswith("server.tokens[ada]: ")
    assert said in str(caught.value)
    assert (content or "nothing").strip() == "" or (content or "nothing") not in str(caught.value)


def test_a_token_of_just_the_least_length_is_one(tmp_path: Path) -> None:
    assert len(read_tokens(server(tokens=[token("ada", write(tmp_path / "ada", "x" * 16))]))) == 1


def test_a_short_admin_token_still_opens_and_is_warned_of(tmp_path: Path) -> None:
    settings = server(admin_token=f"file:{write(tmp_path / 'admin', 'hunter2')}")
    assert [one.secret for one in read_tokens(settings)] == ["hunter2"]
    (said,) = token_advice(settings)
    assert said.startswith("server.admin_token: the token has fewer than 16 characters")
    assert "hunter2" not in said


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_file_that_everybody_can_read_is_warned_of(tmp_path: Path, mode: int, *, warned: bool) -> None:
    place = write(tmp_path / "ada", LONG, mode=mode)
    said = list(token_advice(server(tokens=[token("ada", place)])))
    assert said == ([f"server.tokens[ada]: every user of this machine can read {place}; `chmod o-rwx` it"] * warned)


def test_pages_that_are_open_to_a_network_are_warned_of(tmp_path: Path) -> None:
    mine = token("ada", write(tmp_path / "ada", LONG))
    (said,) = token_advice(server(admin_listen="0.0.0.0:1", page="open", tokens=[mine]))
    assert said == "server.page: open shows the pages to everybody who reaches 0.0.0.0:1"
    assert list(token_advice(server(admin_listen="0.0.0.0:1", tokens=[mine]))) == []
    assert list(token_advice(server(page="open", tokens=[mine]))) == []


def test_a_check_of_the_file_finds_a_useless_token_where_it_can_read_it(tmp_path: Path) -> None:
    short = token("ada", write(tmp_path / "ada", "hunter2"))
    (said,) = token_advice(server(tokens=[short]))
    assert said.startswith("server.tokens[ada]: the token in file:")
    assert list(token_advice(server(tokens=[short, token("bob", "/gone")]))) == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name twice": (
        {"tokens": [token("ada", "/a"), token("bob", "/b"), token("ada", "/c")]},
        "server.tokens[2].name: ada is the name of server.tokens[0] already",
    ),
    "the admin's name": ({"tokens": [token("admin", "/a")]}, "server.tokens[0].name: admin is what the caller with"),
    "one place for two": (
        {"tokens": [token("ada", "/a"), token("bob", "/a")]},
        "server.tokens[1].token: server.tokens[0] has its token there already",
    ),
    "the admin's place": (
        {"admin_token": "file:/a", "tokens": [token("ada", "/a")]},
        "server.tokens[0].token: server.admin_token has its token there already",
    ),
    "no such role": ({"tokens": [token("ada", "/a", "owner")]}, "server.tokens[0].role: found 'owner'; allowed: 'vie"),
    "a secret in the file": (
        {"tokens": [{"name": "ada", "role": "viewer", "token": LONG}]},
        "server.tokens[0].token: secrets are not written here",
    ),
    "a name with a space": ({"tokens": [token("ada l", "/a")]}, "server.tokens[0].name: "),
    "token pages without tokens": ({"page": "token"}, "server: page: token lets nobody read"),
    "a listener for all without tokens": (
        {"admin_listen": "0.0.0.0:9470"},
        "server: admin_listen 0.0.0.0:9470 can be reached from elsewhere, so it needs admin_token or tokens",
    ),
    "an address with a path": (
        {"page_url": "https://q.test/x"},
        "server.page_url: an address without a path",
    ),
    "no address": ({"page_url": "q.test"}, "server.page_url: "),
}


@pytest.mark.parametrize(("section", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_fault_is_named_with_its_key(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, **section)
    (problem,) = caught.value.problems
    assert f"{problem.key}: {problem.message}".startswith(said)
    assert LONG not in str(caught.value)


def test_tokens_are_enough_beyond_loopback(tmp_path: Path) -> None:
    assert loaded(tmp_path, admin_listen="0.0.0.0:9470", tokens=[token("ada", "/a")]).server.secured


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://Q.test", "https://q.test"),
        ("https://q.test:443/", "https://q.test"),
        ("http://q.test:80", "http://q.test"),
        ("https://q.test:8443", "https://q.test:8443"),
    ],
)
def test_the_pages_address_is_kept_as_browsers_write_an_origin(given: str, kept: str) -> None:
    assert server(page_url=given).page_url == kept


def test_tokens_change_by_a_reload_and_are_told_by_name(tmp_path: Path) -> None:
    before = loaded(tmp_path, tokens=[token("ada", "/a"), token("bob", "/b")])
    after = loaded(tmp_path, tokens=[token("bob", "/b", "admin")], page="token")
    told = changes(before, after)
    assert told == [
        "server.tokens.ada.name: gone, was ada",
        "server.tokens.ada.role: gone, was operator",
        "server.tokens.ada.token: gone, was file:/a",
        "server.tokens.bob.role: operator -> admin",
        "server.page: new, token",
    ]
    assert needing_restart(told) == []


def test_a_command_bears_the_token_of_its_user_first_and_else_the_one_that_opens_most(tmp_path: Path) -> None:
    places = {name: write(tmp_path / name, f"{LONG}{name}") for name in ("wall", "ada", "root", "mine")}
    tokens = [token("wall", places["wall"], "viewer"), token("ada", places["ada"]), token("root", "/gone", "admin")]
    assert callers_token(server(tokens=tokens), {}) == f"{LONG}ada"
    admin = {"admin_token": f"file:{places['root']}"}
    assert callers_token(server(tokens=tokens, **admin), {}) == f"{LONG}root"
    own = {"QUANTWATCH_TOKEN_FILE": str(places["mine"])}
    assert callers_token(server(tokens=tokens, **admin), own) == f"{LONG}mine"
    assert callers_token(server(), own) == f"{LONG}mine"
    assert callers_token(server(), {}) is None


def test_a_command_that_can_read_no_token_says_which_there_are() -> None:
    with pytest.raises(InputError, match=r"names none: server\.tokens\[ada\]: the secret file /gone"):
        callers_token(server(tokens=[token("ada", "/gone")]), {})
