"""Files are told apart by what is in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
import zipfile

from laimr_ros.detectors.contents import (
    is_safetensors,
    why_not_engine,
    why_not_pytorch,
    why_not_safetensors,
)
import pytest
from safetensors.torch import save_file
import torch

CHECKS = (why_not_pytorch, why_not_safetensors, why_not_engine)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a directory of whole files."""
    torch.save({'a': torch.zeros(3)}, tmp_path / 'new.pt')
    torch.save({'a': torch.zeros(3)}, tmp_path / 'old.pt', _use_new_zipfile_serialization=False)
    save_file({'a': torch.zeros(3)}, tmp_path / 'it.safetensors', {'words': 'x'})
    (tmp_path / 'it.xml').write_text('<?xml version="1.0"?>\n<net name="x" version="11"></net>')
    return tmp_path


def test_whole_files_are_what_they_are(files: Path) -> None:
    """And none is another."""
    assert why_not_pytorch(files / 'new.pt') == why_not_pytorch(files / 'old.pt') == ''
    assert why_not_safetensors(files / 'it.safetensors') == ''
    assert is_safetensors(files / 'it.safetensors') and not is_safetensors(files / 'new.pt')
    assert why_not_engine(files / 'it.xml') == ''
    assert why_not_pytorch(files / 'it.safetensors') == (
        'is a file of safetensors, not weights of PyTorch')
    assert why_not_safetensors(files / 'new.pt') == 'is a file of PyTorch, not safetensors'
    assert why_not_pytorch(files / 'it.xml') == 'is an engine of OpenVINO, not weights of PyTorch'


@pytest.mark.parametrize('check', CHECKS)
def test_what_is_no_file_of_weights(
    check: Callable[[Path], str], tmp_path: Path,
) -> None:
    """Each is named for what it is."""
    file = tmp_path / 'file'
    assert check(tmp_path) == 'is a directory'
    assert check(file) == 'cannot be read (No such file or directory)'
    for content, says in ((b'', 'is empty'), ('Wörter\n'.encode() * 100, 'is text'),
                          (b'\x00\xff' * 400, 'is something else'),
                          (b'version https://git-lfs.github.com/spec/v1\n', 'Git LFS')):
        file.write_bytes(content)
        assert says in check(file)


def test_what_is_cut_off(files: Path) -> None:
    """As after an interrupted copy."""
    for name, check in (('new.pt', why_not_pytorch), ('it.safetensors', why_not_safetensors)):
        path = files / name
        path.write_bytes(path.read_bytes()[:-5])
        assert check(path) == 'is damaged or cut off'
    path.write_bytes((10 ** 9).to_bytes(8, 'little') + b'{"a": 1}')
    assert check(path) == 'is damaged or cut off'


def test_other_archives(tmp_path: Path) -> None:
    """A ZIP file is not yet PyTorch's."""
    path = tmp_path / 'a.pt'
    for name, says in (('a.txt', 'is a ZIP file'), ('a/data.pkl', '')):
        with zipfile.ZipFile(path, 'w') as archive:
            archive.writestr(name, 'x')
        assert why_not_pytorch(path).startswith(says)
    torch.jit.script(torch.nn.ReLU()).save(str(path))
    assert why_not_pytorch(path).startswith('is TorchScript, a program')
