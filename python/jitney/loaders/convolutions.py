"""Convolutions of a torch program, changed so that they run faster: the answers stay the same but for rounding."""

from __future__ import annotations

from typing import Any

ASK_FOR_LAYOUT = frozenset(
    {"view", "view_as", "_unsafe_view", "as_strided", "unflatten", "view_as_complex", "contiguous"}
)
"""Operators that fail, or mean something else, where the channels of one place lie side by side in memory."""
MAY_COPY = frozenset({"reshape", "reshape_as", "flatten"})
"""Operators that give the same memory in one layout and a copy in another: what is written into it tells them apart."""
CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})


def fold_batch_norms(module: Any) -> None:
    """Multiplies batch norms into the weights of the convolutions before them."""
    from torch.nn import Parameter
    from torch.nn.utils import fuse_conv_bn_weights

    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for norm in [node for node in module.graph.nodes if _is_folded(node, tensors)]:
        convolution = norm.args[0]
        before, weight, bias, *terms = (*convolution.args, None)[: max(len(convolution.args), 3)]
        own, scale, shift, mean, variance = (_tensor(one, tensors) for one in (bias, *norm.args[1:5]))
        folded = fuse_conv_bn_weights(tensors[weight.target], own, mean, variance, norm.args[7], scale, shift)
        with module.graph.inserting_before(convolution):
            names = [f"{convolution.name}_folded_{part}" for part in ("weight", "bias")]
            for name, one in zip(names, folded):
                module.register_parameter(name, Parameter(one.detach(), requires_grad=False))
            convolution.args = (before, *map(module.graph.get_attr, names), *terms)
        norm.replace_all_uses_with(convolution)
        module.graph.erase_node(norm)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()


def lay_out_by_channel(module: Any) -> None:
    """Keeps the channels of one place side by side, which processors want, where nothing in the program asks how its
    tensors lie in memory.
    """
    import torch

    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    nested = any(isinstance(one, torch.fx.GraphModule) for one in module.children())
    if "conv2d" in map(_operator, nodes) and not nested and not any(map(_asks_for_layout, nodes)):
        module.to(memory_format=torch.channels_last)


def _is_folded(norm: Any, tensors: dict[str, Any]) -> bool:
    """Whether it is a batch norm with fixed numbers of single precision after a convolution that nothing else reads."""
    import torch

    if norm.target is not torch.ops.aten.batch_norm.default or norm.kwargs or norm.args[5]:
        return False
    convolution = norm.args[0]
    if _operator(convolution) not in CONVOLUTIONS or convolution.kwargs or len(convolution.users) != 1:
        return False
    used = [one for one in (*convolution.args[1:3], *norm.args[1:5]) if one is not None]
    fixed = all(one.op == "get_attr" and one.target in tensors for one in used)
    return fixed and None not in norm.args[3:5] and all(tensors[one.target].dtype == torch.float32 for one in used)


def _tensor(node: Any, tensors: dict[str, Any]) -> Any:
    return None if node is None else tensors[node.target]


def _operator(node: Any) -> str:
    """The name of a node's operator without its overload."""
    return getattr(getattr(node.target, "overloadpacket", None), "__name__", "")


def _asks_for_layout(node: Any) -> bool:
    name = _operator(node)
    writes = name.endswith("_") and any(_operator(one) in MAY_COPY for one in node.all_input_nodes)
    return name in ASK_FOR_LAYOUT or writes
