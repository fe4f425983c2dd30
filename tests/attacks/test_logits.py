from __future__ import annotations

import pytest
import torch

from tests.helpers.small_models import SmallCapsules, SmallNet
from torchcaps.attacks.logits import logits_views, select_views
from torchcaps.errors import TorchcapsError
from torchcaps.models import Output, create_model

each_view = pytest.mark.parametrize("name", logits_views.names())


@each_view
def test_views_are_finite_and_keep_a_gradient_where_scores_saturate(name: str) -> None:
    scores = torch.tensor([[0.0, 1e-8, 0.3, 0.9999999, 1.0]], requires_grad=True)
    logits = logits_views.get(name).read(Output(scores, 2 * scores))
    assert logits.isfinite().all()
    assert (logits.diff() >= 0).all()
    (slope,) = torch.autograd.grad(logits.sum(), scores)
    assert slope.isfinite().all()
    assert (slope > 0).all()


def test_views_are_what_their_names_say() -> None:
    scores, logits = torch.tensor([[0.2, 0.5, 0.8]]), torch.tensor([[-7.0, 0.0, 7.0]])
    output = Output(scores, logits)
    expected = {
        "logits": logits,
        "scores": scores,
        "log-odds": (scores / (1 - scores)).log(),
        "atanh": ((1 + scores) / (1 - scores)).log() / 2,
    }
    for view in logits_views:
        torch.testing.assert_close(view.read(output), expected[view.name], rtol=1e-4, atol=1e-4)


def test_strongest_is_every_view_that_fits_and_differs() -> None:
    images = torch.rand(3, 1, 6, 6)
    net, capsules = SmallNet().eval()(images), SmallCapsules().eval()(images)
    free = Output(3 * net.scores + 1, net.logits)
    for output, expected in (
        (net, ["logits", "scores"]),
        (capsules, ["atanh", "log-odds", "scores"]),
        (Output(net.logits.sigmoid(), net.logits), ["logits", "scores"]),
        (free, ["logits", "scores"]),
    ):
        assert [view.name for view in select_views("strongest", output)] == expected


@pytest.mark.parametrize("name", ["capsnet", "ar-capsnet", "g-capsnet-conv", "matrix-capsnet"])
def test_real_capsules_are_seen_as_lengths(name: str) -> None:
    output = create_model(name, size="laptop").eval()(torch.rand(2, 1, 28, 28))
    assert [view.name for view in select_views("strongest", output)] == ["atanh", "log-odds", "scores"]


def test_real_capsules_without_squash_have_no_log_odds() -> None:
    model = create_model("capsnet", size="laptop", nonlinearity="none", decoder="none").eval()
    with torch.no_grad():
        output = model(torch.rand(2, 1, 28, 28))
        output = output._replace(scores=output.scores / output.scores.max() * 1.5)
    with pytest.raises(TorchcapsError, match=r"'atanh' need scores in \[0, 1\], but this model's scores reach 1.5"):
        select_views("atanh", output)


def test_unknown_logits_are_refused() -> None:
    with pytest.raises(TorchcapsError, match=r"logits 'odds' is unknown: did you mean 'log-odds'\?"):
        select_views("odds", SmallNet().eval()(torch.rand(1, 1, 6, 6)))
