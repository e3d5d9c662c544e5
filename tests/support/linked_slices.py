"""A batch, an operator and the kernel that it launched."""

from __future__ import annotations

from typing import Any

from tests.unit.timeline.rows import make_slice

HOSTILE = "<script>alert(1)</script>"


def linked_rows() -> list[dict[str, Any]]:
    return [
        make_slice(0, 1000, 500, name="aten::mm", sequence=7, args='{"Input Dims": [[2, 3]]}'),
        make_slice(1, 1100, 50, name="cudaLaunchKernel", category="runtime", depth=1, parent=0),
        make_slice(2, 2000, 700, name="gemm" * 2500, category="kernel", track=8, launched_by=1, operator="aten::mm"),
        make_slice(3, 3000, 900, name="MmBackward0", sequence=7),
        make_slice(4, 5000, 100, name=HOSTILE),
    ]
