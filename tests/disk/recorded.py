"""Record a training with all that it writes watched: python -m tests.disk.recorded BASE LOG.

The training and its recorder share this process, so that their operations have one order.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from collector.format.run import Run
from collector.options import parse_options
from collector.session.beside import Beside
from collector.session.recording import Recording
from collector.sidecar.process import find_log
from collector.sidecar.recorder import Recorder
from tests.support import shapes

FLUSHES = 6


def main(base: Path, log: Path) -> None:
    disk = ctypes.CDLL(None)
    base.mkdir()
    disk.disk_watch(str(base).encode(), os.open(log, os.O_WRONLY | os.O_CREAT, 0o600))
    Beside.start = lambda self: None  # type: ignore[method-assign]
    recording = Recording(base / "run", parse_options({"window": None}))
    recording.resume()
    memory = recording.log.share()
    assert memory is not None
    recorder = Recorder(recording.place.rank_folder, find_log(memory))
    recorder.flush()
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for _ in range(FLUSHES):
        shapes.train_on(model, optimizer, shapes.loader())
        recorder.poll()
        recorder.flush()
        disk.disk_note(f"steps {Run(base / 'run').rank(0).count_steps()}".encode())
    recording.leave()
    recorder.finish("complete")
    disk.disk_note(f"steps {Run(base / 'run').rank(0).count_steps()}".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
