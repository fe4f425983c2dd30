"""The experiments of the shipped specs: each has the settings, rows, columns and claims of its paper."""

from __future__ import annotations

import re
from typing import Any

import pytest

from torchcaps.layers import MeanImage
from torchcaps.reproduce.jobs import training_job
from torchcaps.reproduce.spec import PROFILES, Profile, Spec, list_papers, load_spec
from torchcaps.train import RunConfig

profiles = pytest.mark.parametrize("profile", PROFILES)
# Claims that are easily left out. Each is a statement of the paper's text, not only of a table.
CLAIMS = {
    "chen2019": {
        "no-routing-overhead",
        "exponential-squash-converges-faster",
        "g-capsnets-beat-cnn-on-mnist",
    },
    "yang2021": {"faster-on-fashion", "faster-on-cifar10", "below-0.4-on-mnist"},
    "gu2021": {
        "no-squash-fails-in-training",
        "robust-with-fewer-parameters",
        "components-enhance-a-convnet",
        "no-convnet-wins-everywhere",
    },
    "hinton2018": {
        "fewer-errors-than-the-state-of-the-art",
        "third-fewer-errors-from-novel-viewpoints",
        "fifteen-times-fewer-parameters",
        "small-network-beats-the-best-cnn",
        "gradient-is-two-orders-smaller",
        "never-below-chance",
    },
    "choi2019": {
        "ensemble-beats-capsnets",
        "fewer-parameters",
        "digit-8-best-and-5-worst",
        "two-peaks",
        "augmentation-helps",
    },
}
# The section that discusses each table and figure, as numbered in the papers.
SECTIONS = {
    "hinton2018": {"Table 1": "5", "Table 2": "5.1", "Figure 3": "6"},
    "chen2019": {"Table 2": "4.1", "Table 3": "4.2", "figure 1": "6.2"},
    "choi2019": {"Table 2": "4.3", "Table 3": "4.4", "Figure 4": "4.4"},
    "yang2021": {"Table II": "IV-B", "Figure 2": "IV-B", "Figure 3": "IV-C", "Figure 4": "IV-C"},
    "gu2021": {"Table 1": "3.1", "Table 2": "3.1", "Table 3": "3.1", "Table 4": "3.2", "Figure 3": "3.2"}
    | {"Table 5": "3.3"},
}


def config(spec: Spec, training: str, profile: Profile) -> RunConfig:
    return training_job(spec, training, profile, seed=0).config


def settings(spec: Spec, table: str, cell: str, profile: Profile) -> dict[str, Any]:
    """The arguments of a cell's measure: those of the table, then its own."""
    return spec.tables[table].settings.of(profile) | spec.tables[table].cells[cell].settings


def claimed(spec: Spec, claim: str) -> set[str]:
    """The cells that a claim compares."""
    return {path for each in spec.claims[claim].comparisons for term in each.terms() for path in term}


@pytest.mark.parametrize("paper", CLAIMS)
def test_no_claim_is_left_out(paper: str) -> None:
    assert CLAIMS[paper] <= set(load_spec(paper).claims)


@pytest.mark.parametrize("paper", list_papers())
def test_no_claim_counts_twice(paper: str) -> None:
    found: dict[str, str] = {}
    for name, claim in load_spec(paper).claims.items():
        compared = str(sorted(str(each) for each in claim.comparisons))
        assert compared not in found, f"{name} and {found[compared]} compare the same cells"
        found[compared] = name


@pytest.mark.parametrize("paper", SECTIONS)
def test_claims_name_the_section_of_their_table(paper: str) -> None:
    checked = 0
    for name, claim in load_spec(paper).claims.items():
        source = claim.source.partition(";")[0]  # then comes what is ours
        for place, section in SECTIONS[paper].items():
            if re.search(rf"\b{place}\b", source):
                assert re.search(rf"(?<![\d.]){re.escape(section)}(?![\d.]*\d)", source), name
                checked += 1
    assert checked >= 3


@profiles
def test_chen2019_follows_the_released_configuration(profile: Profile) -> None:
    spec = load_spec("chen2019")
    for name in spec.trainings:
        run = config(spec, name, profile)
        capsules, multi = run.model.startswith(("g-capsnet", "capsnet")), run.model == "g-capsnet-multi"
        dynamic = name.startswith("capsnet")
        if capsules:
            assert run.loss == ("margin-0.7" if run.data == "mnist" else "margin-0.6"), name
        if name.startswith("cnn"):
            assert run.options["dropout"] == 0.5, name
        if dynamic:
            assert run.options["routing_options"]["iterations"] == 4, name
        elif capsules:
            expected = "exponential-relu" if multi else "relu-exponential"
            assert run.options["nonlinearity"] == ("relu-squash" if name.endswith("-squash") else expected), name
        if run.data == "cifar-10":  # the mean image is subtracted for the capsules and not for the CNN
            assert isinstance(run.meta_model().preprocess, MeanImage) == capsules, name


def test_chen2019_reads_the_epsilon_of_the_black_box_in_three_ways() -> None:
    cells = load_spec("chen2019").tables["black-box"].cells
    for row in ("cnn", "fc", "conv"):
        assert cells[f"{row}-8"].settings["epsilon"] == pytest.approx(8 / 255, abs=1e-5)
        assert cells[f"{row}-64"].settings["epsilon"] == pytest.approx(64 / 255, abs=1e-5)
        unscaled = cells[f"{row}-unscaled"]
        assert unscaled.measure == "unclipped-transfer-accuracy"
        assert unscaled.settings == {"epsilon": 8.0, "images": 10_000}  # all images: shares of the digits 1 and 5
        assert unscaled.published == cells[f"{row}-8"].published


def test_chen2019_attacks_every_network_with_three_universal_attacks() -> None:
    cells = load_spec("chen2019").tables["universal-attack"].cells
    for row in ("cnn", "fc", "conv"):
        assert cells[row].settings == {"attack": "universal", "loss": "logit-difference"}  # as the paper describes it
        assert cells[f"{row}-cross-entropy"].settings == {"attack": "universal", "loss": "cross-entropy"}
        assert cells[f"{row}-pgd"].settings == {"attack": "universal-pgd"}


@profiles
def test_yang2021_judges_the_pace_early_and_the_time_in_plain_form(profile: Profile) -> None:
    spec = load_spec("yang2021")
    for name in spec.tables["fig3"].cells:
        assert settings(spec, "fig3", name, profile)["early"] <= 0.5, name
    cells = spec.tables["fig4"].cells
    for name in [each for each in cells if not each.endswith("-plain")]:
        plain = cells[f"{name}-plain"]
        assert (plain.settings, plain.training) == ({"form": "plain"}, cells[name].training)
    assert all(path.endswith("-plain") for path in claimed(spec, "a-fifth-less-time"))
    for name in ("l2-fc-capsules", "dr-capsules"):
        assert spec.tables["fig2"].cells[name].measure == "wrong-reconstructions"
        assert settings(spec, "fig2", name, profile)["images"] == 100


def test_choi2019_measures_figure_4_on_all_images_ensembles_in_desk_and_times_in_the_papers_size() -> None:
    spec = load_spec("choi2019")
    for profile in ("desk", "paper"):
        assert settings(spec, "fig4", "peaks", profile)["images"] == 10_000
    table = spec.tables["table1"].cells
    for name in ("ar-ensemble-cifar10", "ar-ensemble-cifar10-moved"):
        assert (table[name].members, table[name].profiles) == (7, ("desk", "paper"))
    for name in ("ar-mnist-time", "ar-cifar10-time"):
        assert table[name].settings == {"form": "plain", "size": "paper"}


def test_gu2021_shows_accuracy_on_training_images_beside_that_on_test_images() -> None:
    spec = load_spec("gu2021")
    for table, column, tested in (
        ("table2", "Train-MNIST", "-mnist"),
        ("table2-fixed", "Train-MNIST", "-mnist"),
        ("table4", "Train-MultiMNIST", ""),
    ):
        cells = spec.tables[table].cells
        trained = {name.removesuffix("-train"): cell for name, cell in cells.items() if cell.column == column}
        assert {cell.row for cell in trained.values()} == {cell.row for cell in cells.values()}
        for name, cell in trained.items():
            assert (cell.measure, cell.training) == ("train-accuracy", cells[f"{name}{tested}"].training)


@profiles
def test_gu2021_compares_networks_with_a_quarter_of_the_channels(profile: Profile) -> None:
    """ConvNet-FC(LK) has the parameters of CapsNet whatever its filters, so that a ratio of parameters hides them."""
    spec = load_spec("gu2021")
    filters = 256 if profile == "paper" else 64
    for name in spec.trainings:
        run = config(spec, name, profile)
        if run.model in ("convnet-fc", "convnet-fc-lk"):
            assert run.meta_model().layers[0].out_channels == filters, name


def test_hinton2018_has_the_numbers_of_the_text_too() -> None:
    spec = load_spec("hinton2018")
    norb = spec.tables["table1"].cells["norb"]
    assert (norb.published, norb.measure) == (2.6, None)
    assert "not available" in norb.note
    figure = spec.tables["fig2"].cells
    assert figure["human-whole"].settings == {"category": "human", "whole": True}  # figure B.2
    epsilons = settings(spec, "fig3", "capsules-fgsm", "desk")["epsilons"]
    assert settings(spec, "fig3", "capsules-fgsm-lowest", "desk")["epsilons"] == epsilons, "over the whole axis"
