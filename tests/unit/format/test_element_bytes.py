"""How many bytes an element of each type has, as torch itself says, under the names that traces give them."""

from __future__ import annotations

import pytest
import torch

from collector.format.words import find_element_bytes

NAMES = {
    "float16": ("c10::Half", "Float16", "Half"),
    "bfloat16": ("c10::BFloat16", "BFloat16", "torch.bfloat16"),
    "float8_e4m3fn": ("c10::Float8_e4m3fn",),
    "float32": ("float", "Float"),
    "float64": ("double", "Float64", "Double"),
    "complex64": ("c10::complex<float>", "ComplexFloat", "complex64"),
    "complex128": ("c10::complex<double>", "ComplexDouble", "complex128"),
    "complex32": ("c10::complex<c10::Half>", "ComplexHalf", "complex32"),
    "int64": ("long int", "Int64", "Long"),
    "int32": ("int", "Int32", "Int"),
    "int16": ("short int", "Int16", "Short"),
    "int8": ("signed char", "Int8", "Char"),
    "uint8": ("unsigned char", "Byte"),
    "bool": ("bool", "Bool"),
    "uint4": ("uint4", "UInt4", "int4"),
    "quint4x2": ("c10::quint4x2", "QUInt4x2"),
    "float8_e5m2": ("Float8_e5m2",),
}


@pytest.mark.parametrize("dtype", NAMES)
def test_an_element_has_the_bytes_that_it_has_in_torch(dtype: str) -> None:
    size = getattr(torch, dtype).itemsize
    assert {name: find_element_bytes(name) for name in NAMES[dtype]} == dict.fromkeys(NAMES[dtype], size)


def test_a_type_that_is_not_known_has_no_size() -> None:
    assert [find_element_bytes(name) for name in ("", "Scalar", "TensorList", "Undefined", "None")] == [None] * 5
