"""Private directories for sockets."""

import stat

from laimr_ros.cluster.runtime_directory import default_base, RuntimeDirectory


def test_only_the_user_may_enter(tmp_path):
    """Whoever reaches a socket can use the worker."""
    directory = RuntimeDirectory(tmp_path / 'made')
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    (directory.path / 'a.sock').touch()
    directory.close()
    directory.close()
    assert list((tmp_path / 'made').iterdir()) == []


def test_sweeps_only_what_nobody_owns(tmp_path):
    """One left over by a killed owner goes; a living one's and a stranger's stay."""
    living = RuntimeDirectory(tmp_path)
    left_over = tmp_path / 'laimr-left'
    left_over.mkdir()
    (left_over / '.lock').touch()
    (left_over / 'a.sock').touch()
    not_locked_yet = tmp_path / 'laimr-new'
    not_locked_yet.mkdir()
    strange = tmp_path / 'other'
    strange.mkdir()
    (strange / '.lock').touch()
    mine = RuntimeDirectory(tmp_path)
    assert not left_over.exists()
    assert living.path.is_dir() and not_locked_yet.is_dir() and strange.is_dir()
    mine.close()
    living.close()


def test_default_base_is_short_enough_for_sockets(monkeypatch):
    """A runtime directory with a long name is passed over."""
    monkeypatch.setenv('XDG_RUNTIME_DIR', '/x' * 60)
    assert len(str(default_base())) < 40
