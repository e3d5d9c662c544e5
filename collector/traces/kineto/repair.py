"""Mend text that is almost JSON: what profilers and editors have been seen to write."""

from __future__ import annotations

import re

# Control characters inside a string are not JSON; outside they are blanks anyway, so all of them become blanks.
_CONTROL_TO_BLANK = bytes(32 if code < 32 else code for code in range(256))
# A string is matched first, so that what looks like a fault inside of a name is left alone. One that does not end
# reaches to the end of the text, so that no string is looked for twice.
_TOKENS = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    rb"|(?P<number>[-+]?\b(?:NaN|nan|Infinity|infinity|inf|Inf)\b)"
    rb"|(?P<comma>,)(?=\s*[\]}])",
    re.DOTALL,
)
_BAD_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?P<bad>))')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def repair_json(text: bytes) -> bytes:
    """Return the text with control characters, NaN, infinities, trailing commas, stray escapes and bytes mended."""
    text = text.translate(_CONTROL_TO_BLANK)
    text = _TOKENS.sub(_mend_token, text)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode("utf-8")
    return text


def _mend_token(match: re.Match[bytes]) -> bytes:
    if match["number"] is not None:
        return b"null"
    if match["comma"] is not None:
        return b""
    token = match[0]
    if b"\\" not in token:
        return token
    token = _BAD_ESCAPE.sub(_mend_escape, token)
    return _SURROGATE.sub(b"\\\\ufffd", token)


def _mend_escape(match: re.Match[bytes]) -> bytes:
    return b"\\\\" if match["bad"] is not None else match[0]
