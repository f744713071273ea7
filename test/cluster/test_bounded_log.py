"""Log files with a limit."""

from laimr_ros.cluster.bounded_log import BoundedLog


def test_keeps_the_newest_bytes(tmp_path):
    """The file and one generation before it; together they hold the end of what was written."""
    path = tmp_path / 'deep' / 'a.log'
    log = BoundedLog(path, max_bytes=10)
    for n in range(9):
        log.write(b'%d123' % n)
    log.close()
    log.close()
    assert path.read_bytes() == b'8123'
    assert path.with_name('a.log.1').read_bytes() == b'61237123'
    assert len(list(path.parent.iterdir())) == 2


def test_appends_to_what_is_there(tmp_path):
    """A replacement's lines follow those of the one that crashed, within the same limit."""
    path = tmp_path / 'a.log'
    path.write_bytes(b'before ')
    log = BoundedLog(path, max_bytes=10)
    log.write(b'aft')
    assert path.read_bytes() == b'before aft'
    log.write(b'er')
    assert path.read_bytes() == b'er'


def test_a_burst_over_the_limit_keeps_its_end(tmp_path):
    """One write larger than the file may ever be."""
    log = BoundedLog(tmp_path / 'a.log', max_bytes=4)
    log.write(b'0123456789')
    assert (tmp_path / 'a.log').read_bytes() == b'6789'


def test_trouble_with_the_disk_is_told_once_and_harmless(tmp_path, caplog):
    """A log that cannot be written costs its lines only."""
    (tmp_path / 'file').write_text('')
    log = BoundedLog(tmp_path / 'file' / 'a.log')
    log.write(b'x')
    log.write(b'y')
    log.close()
    assert len(caplog.records) == 1
    BoundedLog(None).write(b'nothing')
