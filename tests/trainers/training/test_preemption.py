import math
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf

from beambert.trainers.training import preemption
from tests.forked import start


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.usefixtures("interrupt_handler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_recorded_and_the_handlers_are_restored(number, capfd, monkeypatch):
    monkeypatch.setattr(preemption, "REPEAT_SECONDS", math.inf)
    handler, descriptor, threads = signal.getsignal(number), signal.set_wakeup_fd(-1), threading.active_count()
    files = open_files()
    with preemption.preemption_signals() as noted:
        assert noted.signal_number is None
        os.kill(os.getpid(), number)
        assert noted.signal_number == number
        # A repeated signal is the same request.
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is handler
    assert signal.set_wakeup_fd(descriptor) == -1
    # Threads of earlier tests may end in the meantime.
    assert threading.active_count() <= threads
    assert open_files() == files
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"{number.name}: saving a checkpoint")


def test_an_ignored_signal_stays_ignored(interrupt_handler):
    interrupt_handler(signal.SIG_IGN)
    with preemption.preemption_signals() as noted:
        os.kill(os.getpid(), signal.SIGINT)
        assert noted.signal_number is None


def test_no_signal_is_recorded_outside_the_main_thread():
    seen = []

    def body():
        with preemption.preemption_signals() as noted:
            seen.append(noted.signal_number)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [None]


def compute_for_ever():
    """Make a call into TensorFlow that never returns."""
    with preemption.preemption_signals():
        print("ready", flush=True)
        tf.function(lambda: tf.while_loop(lambda x: True, lambda x: (tf.sin(x),), (tf.zeros([100]),)))()


def test_a_second_signal_ends_the_process_within_a_call_into_tensorflow(tmp_path):
    log = tmp_path / "log"
    process = start(log, compute_for_ever)

    def wait_for(words):
        while not log.exists() or words not in log.read_text():
            assert process.is_alive(), log.read_text()
            time.sleep(0.01)

    wait_for("ready")
    os.kill(process.pid, signal.SIGINT)
    wait_for("SIGINT: ")
    time.sleep(preemption.REPEAT_SECONDS)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    assert log.read_text().splitlines()[-1] == "Stopped without a checkpoint"
