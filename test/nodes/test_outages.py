"""Outages of pools: told at the first frame that suffers, and when they are over."""

from __future__ import annotations

from laimr_ros.nodes.outages import Need, Outages


def test_one_warning_and_one_end():
    outages = Outages()
    down, up = {'edge': {'a:1': 'it has stopped'}}, {'edge': {'a:1': ''}}

    def look(now, unanswered, replicas):
        return list(outages.update(now, {'lane': Need(('edge',), unanswered)}, replicas))

    assert look(0.0, 5, down) == []
    ((text, bad),) = look(1.0, 6, down)
    assert bad and 'pool edge' in text and 'lane lane' in text and 'a:1: it has stopped' in text
    assert look(2.0, 50, down) == []
    ((text, bad),) = look(9.0, 60, up)
    assert not bad and text == 'pool edge serves again after 9 s; 55 frames went unanswered'
    assert look(10.0, 99, up) == []


def test_no_word_of_an_outage_that_nobody_suffers():
    outages = Outages()
    lanes = {'lane': Need(('edge', 'server'), 0)}
    assert not list(outages.update(0.0, lanes, {'edge': {}, 'server': {'b:1': ''}}))
    # Another pool takes them; what is late there has other reasons.
    lanes = {'lane': Need(('edge', 'server'), 9)}
    assert not list(outages.update(1.0, lanes, {'edge': {}, 'server': {'b:1': ''}}))
    assert not list(outages.update(2.0, lanes, {'edge': {'a:1': ''}, 'server': {'b:1': ''}}))


def test_a_pool_without_any_replica_says_what_to_do():
    outages = Outages()
    list(outages.update(0.0, {'lane': Need(('edge',), 0)}, {'edge': {}}))
    ((text, _),) = outages.update(1.0, {'lane': Need(('edge',), 1)}, {'edge': {}})
    assert 'pools.edge.endpoints' in text and 'bridge' in text
