"""A notebook's kernel that is restarted: cells go to an interactive interpreter, and so does the same once more.

The restart is that of Jupyter: the kernel is asked to end, is sent SIGTERM where it works on, and SIGKILL after 5 s.
"""

import os
import subprocess
import sys

import lesson

CELLS = """
import sys; sys.path.insert(0, {folder!r})
import torch, lesson

lesson.begin()
model = lesson.make_model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)

for step, batch in enumerate(loader, 1):
    loss = lesson.take_step(model, optimizer, batch)
    if {condition}:
        break

"""


def start():
    return subprocess.Popen([sys.executable, "-q", "-i"], stdin=subprocess.PIPE, text=True, bufsize=1)


def run_cells(kernel, condition):
    kernel.stdin.write(CELLS.format(folder=os.path.dirname(os.path.abspath(__file__)), condition=condition))
    kernel.stdin.flush()


def restart(kernel):
    kernel.stdin.write("exit()\n")
    kernel.stdin.close()
    for end in (lambda: None, kernel.terminate, kernel.kill):
        end()
        try:
            kernel.wait(5)
            break
        except subprocess.TimeoutExpired:
            pass
    return start()


def main():
    kernel = start()
    run_cells(kernel, "step == 5")
    kernel.stdin.write("lesson.save(model, 'first')\n")
    while not os.path.exists("checkpoint.first.pt"):
        lesson.time.sleep(0.05)
    kernel = restart(kernel)
    run_cells(kernel, "lesson.is_over(step, model, loss)")
    kernel.stdin.write("lesson.finish()\n")
    kernel.stdin.close()
    code = kernel.wait()
    lesson.say(f"the kernel ended with {code}")
    sys.exit(code if code >= 0 else 1)


main()
