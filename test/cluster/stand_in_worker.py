"""A worker that serves nothing: what a holder of processes sees of one, and its misbehaviours."""

import os
import signal
import socket
import subprocess
import sys
import time

from laimr_ros import lifeline


def main() -> int:
    """Behave as told: ``stand_in_worker.py BEHAVIOUR LISTEN``; ``@FILE`` reads the behaviour."""
    began = time.monotonic()
    lifeline.attach()
    behaviour, listen = sys.argv[1:]
    if behaviour.startswith('@'):
        with open(behaviour[1:]) as file:
            behaviour = file.read().strip()
    if behaviour == 'misconfigured':
        print('Traceback (most recent call last):', file=sys.stderr)
        print('worker: weights: /no/such.pt: no such file', file=sys.stderr)
        return 2
    if behaviour == 'crash':
        print('worker: the device is on fire', file=sys.stderr)
        return 7
    if behaviour == 'never':
        time.sleep(600)
    if behaviour == 'chatty':
        for _ in range(2000):
            print('x' * 100)
    if behaviour == 'parent':
        child = subprocess.Popen(['sleep', '600'])
        print('child', child.pid, flush=True)
    server = socket.socket(socket.AF_UNIX)
    if listen.startswith('unix:'):
        server.bind(listen[len('unix:'):])
        server.listen()
    else:
        listen = '127.0.0.1:4321'
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print('loading', began, time.monotonic(), flush=True)
    print('ready', listen, 0.1, flush=True)
    if behaviour == 'brief':
        print('worker: lost its memory', file=sys.stderr, flush=True)
        return 1
    while True:
        signal.sigwait({signal.SIGTERM})
        if behaviour == 'slow':
            time.sleep(0.5)
        if behaviour != 'stubborn':
            os.write(1, b'drained\n')
            return 0


if __name__ == '__main__':
    sys.exit(main())
