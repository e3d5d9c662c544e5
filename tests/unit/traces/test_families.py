from __future__ import annotations

import pytest

from collector.format.words import FAMILIES
from collector.traces.families import find_family


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aten::mm", "matmul"),
        ("aten::addmm", "matmul"),
        ("aten::linear", "matmul"),
        ("aten::bmm", "matmul"),
        ("aten::conv2d", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::miopen_convolution", "convolution"),
        ("aten::_flash_attention_forward", "attention"),
        ("aten::scaled_dot_product_attention", "attention"),
        ("aten::native_layer_norm", "normalization"),
        ("aten::cudnn_batch_norm_backward", "normalization"),
        ("aten::relu_", "activation"),
        ("aten::gelu", "activation"),
        ("aten::_softmax", "activation"),
        ("aten::max_pool2d_with_indices", "pooling"),
        ("aten::add_", "elementwise"),
        ("aten::mul", "elementwise"),
        ("aten::pow", "elementwise"),
        ("aten::sum", "reduction"),
        ("aten::mean", "reduction"),
        ("aten::copy_", "copy"),
        ("aten::to", "copy"),
        ("aten::cat", "copy"),
        ("aten::empty_strided", "memory"),
        ("aten::view", "memory"),
        ("aten::nll_loss_forward", "loss"),
        ("aten::cross_entropy_loss", "loss"),
        ("aten::embedding", "embedding"),
        ("aten::index_select", "indexing"),
        ("aten::bernoulli_", "random"),
        ("aten::native_dropout", "random"),
        ("aten::_foreach_addcdiv_", "optimizer"),
        ("c10d::allreduce_", "communication"),
        ("autograd::engine::evaluate_function: MmBackward0", "autograd"),
        ("torch::autograd::AccumulateGrad", "autograd"),
        ("MmBackward0", "autograd"),
        ("my::thing", "other"),
    ],
)
def test_operator_has_its_family(name: str, family: str) -> None:
    assert find_family(name) == family


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("my sum of losses", "annotation"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "annotation"),
    ],
)
def test_names_of_the_users_own_are_annotations(name: str, family: str) -> None:
    assert find_family(name, annotation=True) == family


def test_families_are_named_once() -> None:
    assert len(set(FAMILIES)) == len(FAMILIES)
