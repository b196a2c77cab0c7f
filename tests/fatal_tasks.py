"""Tasks that end their worker: in a module that takes no time to import."""

import os
import signal


def once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def upper(task):
    if task == "fatal":
        os.kill(os.getpid(), signal.SIGKILL)
    return task.upper()
