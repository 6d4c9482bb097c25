"""Files that are no GGUF models end in a sentence; the real conversion is tested behind the marker `model`."""

import contextlib
import json
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quantwatch.errors import InputError
from quantwatch.toolkit.dequantize import dequantize, save
from quantwatch.toolkit.gguf_header import float32_bytes
from quantwatch.toolkit.model import load
from quantwatch.toolkit.source import model_folder
from support.real_model import smollm2
from support.tiny_llama import tiny_llama, tiny_tokenizer


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"<html>no such file</html>", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64]
)
def test_what_is_no_gguf_file_is_refused(content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "broken.gguf", tmp_path / "model"
    file.write_bytes(content)
    folder.mkdir()
    with pytest.raises(InputError, match=r"broken\.gguf: no GGUF file"):
        dequantize(file, folder)
    assert list(folder.iterdir()) == []
    assert capfd.readouterr().out == ""


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """A disk on which no file grows beyond so many bytes, as where a quota is used up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_while_the_model_is_written_is_told_with_a_way_out(tmp_path: Path) -> None:
    tiny, given = load(tiny_llama(tmp_path / "tiny")), tmp_path / "tiny.gguf"
    given.touch()

    def convert(_: Path, folder: Path) -> None:
        save(tiny.model, tiny.tokenizer, folder)

    with files_up_to(50_000), pytest.raises(InputError, match=r"no space left for the model.*--cache DIR"):
        model_folder(str(given), cache=tmp_path / "cache", tell=print, convert=convert)
    assert [one.name for one in (tmp_path / "cache" / "models").iterdir()] == [".lock"]


class SavedAlready:
    """A model for which there was room."""

    def save_pretrained(self, _: Path) -> None:
        pass


def test_a_disk_that_is_full_while_the_tokenizer_is_written_is_told_too(tmp_path: Path) -> None:
    with files_up_to(5_000), pytest.raises(OSError, match="File too large"):
        save(SavedAlready(), tiny_tokenizer(), tmp_path)


def header(*tensors: tuple[int, ...]) -> bytes:
    """A GGUF file without weights: one value of each kind, and tensors of these shapes."""

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    values = [
        text(b"flag") + struct.pack("<IB", 7, 1),
        text(b"name") + struct.pack("<I", 8) + text(b"a name"),
        text(b"words") + struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b"bc"),
        text(b"scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
        text(b"long") + struct.pack("<IQ", 10, 5),
    ]
    told = [text(b"w") + struct.pack(f"<I{len(one)}QIQ", len(one), *one, 10, 0) for one in tensors]
    return b"GGUF" + struct.pack("<IQQ", 3, len(told), len(values)) + b"".join(values + told)


def test_the_space_that_a_model_will_take_stands_in_the_header(tmp_path: Path) -> None:
    """However few bits a weight has in the file."""
    (tmp_path / "two-bit.gguf").write_bytes(header((256, 3), (256,)))
    assert float32_bytes(tmp_path / "two-bit.gguf") == 4 * (256 * 3 + 256)


@pytest.mark.parametrize("content", [b"", b"weights", header((256, 3))[:-1], header()[:-9], b"GGUF" + b"\xff" * 99])
def test_a_broken_header_is_left_to_whoever_converts_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(content)
    assert float32_bytes(tmp_path / "broken.gguf") == 0


def test_a_model_that_will_not_fit_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "huge.gguf").write_bytes(header((2**30, 2**20)))
    with pytest.raises(InputError, match="MB are needed for the model"):
        model_folder(str(tmp_path / "huge.gguf"), cache=tmp_path / "cache", tell=print)


@pytest.mark.model
def test_the_real_model_is_kept_as_a_plain_folder_in_float32() -> None:
    folder = smollm2()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    loaded = load(folder)
    assert "quantization_config" not in config
    assert {value.dtype for value in loaded.model.parameters()} == {torch.float32}
    assert sum(value.numel() for value in loaded.model.parameters()) == 134_515_008
    assert loaded.tokenizer.chat_template
    assert loaded.tokenizer.eos_token_id == 2
