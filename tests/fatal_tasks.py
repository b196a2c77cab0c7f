"""Tasks of workers, that end them or not: in a module that takes no time to import."""

import os
import signal


def once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def pid(task):
    return os.getpid()


def upper(task):
    if task == "fatal":
        os.kill(os.getpid(), signal.SIGKILL)
    return task.upper()
