"""Which source files belong to libraries, and so hold no code of the user's."""

from __future__ import annotations

import sysconfig

LIBRARIES = ("/site-packages/", "/dist-packages/", *{sysconfig.get_path(name) + "/" for name in ("stdlib", "purelib")})
"""Parts of the paths of files that belong to Python or to an installed package."""
