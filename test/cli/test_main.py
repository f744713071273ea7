"""What ``laimr`` says of itself, and of what it does not know."""

from __future__ import annotations

from laimr_ros.cli import main as cli
import pytest


def test_help_is_for_those_who_use_it(capsys):
    with pytest.raises(SystemExit, match='0'):
        cli.main(['--help'])
    told = capsys.readouterr().out
    assert 'LA-IMR for ROS 2' in told
    assert 'Entry point' not in told
    assert all(name in told for name in cli.SUBCOMMANDS)


@pytest.mark.parametrize(('arguments', 'usage'), [
    (['experiment', 'spread', '--sedes', '3'], 'usage: laimr experiment '),
    (['--sedes', 'experiment', 'spread'], 'usage: laimr experiment ')])
def test_an_unknown_option_is_told_with_the_usage_of_the_command(arguments, usage, capsys):
    with pytest.raises(SystemExit, match='2'):
        cli.main(arguments)
    error = capsys.readouterr().err
    assert error.startswith(usage)
    assert 'unrecognized arguments: --sedes' in error


def test_no_command_is_told_with_the_usage_of_all(capsys):
    with pytest.raises(SystemExit, match='2'):
        cli.main(['--sedes'])
    assert capsys.readouterr().err.startswith('usage: laimr [')
