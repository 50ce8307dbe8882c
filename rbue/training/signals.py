"""Signals that end a process wait for a checkpoint."""

import signal
import threading


class Stop:
    """A signal to end (Ctrl-C, SLURM's warning, timeout) waits for the end of the step and for a checkpoint. Then it is
    sent again, to whoever would have had it: submitit asks to be requeued, a plain process ends."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

    def __enter__(self):
        self.asked, self.before = [], {}
        if threading.current_thread() is threading.main_thread():  # Python takes signals nowhere else
            known = [n for n in self.SIGNALS if signal.getsignal(n) is not None]  # None: a library in C has it
            self.before = {number: signal.signal(number, self.ask) for number in known}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)
        for number in self.asked:  # after the last step: the weights are written
            signal.raise_signal(number)

    def ask(self, number, frame):
        self.asked.append(number)

    def pass_on(self):
        while self.asked:
            number = self.asked.pop(0)
            signal.signal(number, self.before[number])
            signal.raise_signal(number)
            signal.signal(number, self.ask)  # it was let pass: the training goes on
