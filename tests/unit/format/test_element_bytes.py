"""How many bytes an element of each type has, as torch itself says, under the names that traces give them."""

from __future__ import annotations

import pytest
import torch

from collector.format.words import find_element_bytes

NAMES = {
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "c10::Float8_e4m3fn": torch.float8_e4m3fn,
    "float": torch.float32,
    "double": torch.float64,
    "c10::complex<float>": torch.complex64,
    "c10::complex<double>": torch.complex128,
    "c10::complex<c10::Half>": torch.complex32,
    "long int": torch.int64,
    "int": torch.int32,
    "short int": torch.int16,
    "signed char": torch.int8,
    "unsigned char": torch.uint8,
    "bool": torch.bool,
    "Float16": torch.float16,
    "Float64": torch.float64,
    "Int64": torch.int64,
    "Int32": torch.int32,
    "Int16": torch.int16,
    "Int8": torch.int8,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Bool": torch.bool,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Float": torch.float32,
    "Double": torch.float64,
    "ComplexHalf": torch.complex32,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "complex32": torch.complex32,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
    "Float8_e5m2": torch.float8_e5m2,
    "torch.bfloat16": torch.bfloat16,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_element_has_the_bytes_that_it_has_in_torch(name: str) -> None:
    assert find_element_bytes(name) == NAMES[name].itemsize


def test_a_type_that_is_not_known_has_no_size() -> None:
    assert [find_element_bytes(name) for name in ("", "Scalar", "TensorList", "Undefined", "None")] == [None] * 5
