"""Programs of torch.export answer as they did after their convolutions were changed to run faster."""

from __future__ import annotations

import pytest
from torch_models import torch

from jitney.loaders.convolutions import fold_batch_norms, lay_out_by_channel
from jitney.loaders.loader import LoadOptions
from jitney.loaders.torch_export import ExportedLoader

pytestmark = pytest.mark.skipif(not hasattr(torch, "export"), reason="torch.export came with torch 2.1")


class Net(torch.nn.Module):
    """Two convolutions with batch norms, a third that is read twice, and a head."""

    def __init__(self, head="flatten", **convolution):
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, bias=False, **convolution), torch.nn.BatchNorm2d(8)
        self.second, self.plain = torch.nn.Conv2d(8, 8, 3, groups=2), torch.nn.BatchNorm2d(8, affine=False)
        self.third, self.again = torch.nn.Conv2d(8, 8, 1), torch.nn.BatchNorm2d(8)
        self.head, self.linear = head, torch.nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        x = torch.relu_(self.norm(self.first(x)))
        x = torch.relu(self.plain(self.second(x)))
        kept = self.third(x)
        x = torch.nn.functional.adaptive_avg_pool2d(self.again(kept) + kept, 4)
        if self.head == "view":
            return self.linear(x.view(x.shape[0], -1)), x
        flat = x.flatten(1)
        if self.head == "write":
            flat.mul_(2)
        return self.linear(flat), x


def seen(net):
    """The net after some training, so that its norms do something."""
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(3):
            net.train()(torch.randn(4, 3, 16, 16) * 3 + 1)
    for norm in (net.norm, net.again):
        torch.nn.init.uniform_(norm.weight, 0.5, 2)
        torch.nn.init.normal_(norm.bias)
    return net.eval()


def program_of(net, dtype=torch.float32):
    """The net as a program for any number of pictures."""
    example = torch.randn(2, 3, 16, 16, dtype=dtype)
    return torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))


def norms(module):
    """How many batch norms a module runs."""
    return sum("batch_norm" in str(node.target) for node in module.graph.nodes)


def by_channel(module):
    """Whether a module's weights have the channels of one place side by side."""
    weights = [one for one in module.parameters() if one.dim() == 4 and one.shape[2:] == (3, 3)]
    return all(one.is_contiguous(memory_format=torch.channels_last) and not one.is_contiguous() for one in weights)


@pytest.mark.parametrize(("head", "laid_out"), [("flatten", True), ("view", False), ("write", False)])
@pytest.mark.parametrize("items", [1, 5])
def test_a_changed_program_answers_as_before(head, laid_out, items):
    """One norm stays, since what it gets is read by another operator, too."""
    net = seen(Net(head))
    module, pictures = program_of(net).module(), torch.randn(items, 3, 16, 16)
    fold_batch_norms(module)
    lay_out_by_channel(module)
    assert norms(module) == 1 and by_channel(module) == laid_out
    with torch.inference_mode():
        for got, expected in zip(module(pictures), net(pictures)):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_padding_by_name_is_folded_too():
    net = seen(Net(padding="same"))
    module, pictures = program_of(net).module(), torch.randn(2, 3, 16, 16)
    fold_batch_norms(module)
    assert norms(module) == 1
    with torch.inference_mode():
        torch.testing.assert_close(module(pictures)[0], net(pictures)[0], rtol=1e-4, atol=1e-5)


def test_norms_of_half_precision_stay():
    """Their products would be rounded once more."""
    module = program_of(seen(Net()).bfloat16(), torch.bfloat16).module()
    fold_batch_norms(module)
    assert norms(module) == 3


def test_a_program_without_convolutions_stays():
    module = program_of(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2)).eval()).module()
    before = str(module.graph)
    fold_batch_norms(module)
    lay_out_by_channel(module)
    assert str(module.graph) == before


def test_the_loader_changes_what_it_loads(tmp_path):
    net = seen(Net())
    torch.export.save(program_of(net), tmp_path / "net.pt2")
    loader = ExportedLoader(LoadOptions())
    loader.load(tmp_path / "net.pt2", "cpu")
    [name] = loader.tensors().inputs
    pictures = torch.randn(3, 3, 16, 16)
    scores, places = loader.run({name: pictures}).values()
    assert places.is_contiguous(memory_format=torch.channels_last) and loader.tensors().inputs[name].shape[0] == -1
    with torch.inference_mode():
        for got, expected in zip((scores, places), net(pictures)):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
