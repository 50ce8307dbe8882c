"""Delay the signals that end a process until a checkpoint is written."""

import signal
import threading


class Stop:
    """Make a signal (Ctrl-C, SLURM's warning, timeout) wait for the end of the step and for a checkpoint.

    Then the signal is raised again for its previous handler: submitit requeues the job, and a plain process ends.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

    def __enter__(self):
        self.asked, self.before = [], {}
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            known = [n for n in self.SIGNALS if signal.getsignal(n) is not None]  # None: a C library handles it
            self.before = {number: signal.signal(number, self.ask) for number in known}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)
        for number in self.asked:  # signals that came after the last step: the weights are written now
            signal.raise_signal(number)

    def ask(self, number, frame):
        self.asked.append(number)

    def pass_on(self):
        while self.asked:
            number = self.asked.pop(0)
            signal.signal(number, self.before[number])
            signal.raise_signal(number)
            signal.signal(number, self.ask)  # the previous handler returned, so the training goes on
