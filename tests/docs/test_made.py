"""Generated parts of README and the documentation are current."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.doc_blocks import ROOT, blocks_in
from tests.helpers.synthetic_results import ENVIRONMENT
from torchcaps.cli.settings import parse_settings
from torchcaps.files import read_json, read_yaml, write_json
from torchcaps.reproduce.spec import TOPICS, list_papers, load_spec
from torchcaps.reproduce.verdicts import VERDICTS
from torchcaps.routing import routings
from torchcaps.train import resolve

SCRIPTS = ROOT / "scripts"
pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="only a clone has the scripts")
AGAIN = "run: python scripts/docs_pages.py"


@pytest.fixture(scope="module")
def pages() -> Any:
    """The script that generates all pages, as a module."""
    import docs_pages

    return docs_pages


def test_pages_agree_with_registries_and_results() -> None:
    command = [sys.executable, "-m", "tests.helpers.stale_pages"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {"parts": [], "papers": [], "without page": []}, AGAIN


def test_every_claim_has_a_topic_and_every_topic_a_section() -> None:
    missing = [
        f"{paper}: {name}"
        for paper in list_papers()
        for name, claim in load_spec(paper).claims.items()
        if claim.topic is None
    ]
    assert not missing
    page = (ROOT / "docs" / "learned.md").read_text(encoding="utf-8")
    assert all(page.count(f"docs_pages.py: learned {topic} -->") == 1 for topic in TOPICS)


def test_findings_are_about_claims_and_cells_of_the_specs(pages: Any) -> None:
    for topic, findings in pages.learned.read_findings().items():
        assert topic in TOPICS
        for finding in findings:
            claims = [path.split("/") for path in finding["claims"]]
            assert {load_spec(paper).claims[name].topic for paper, name in claims} == {topic}
            assert set(finding["claims"].values()) <= set(VERDICTS[:-1])
            for paper, path, published in pages.learned.FIGURE.findall(finding["text"]):
                table, _, cell = path.partition("/")
                measured = load_spec(paper).tables[table].cells[cell]
                assert paper in {each for each, _ in claims}
                assert measured.published is not None or not published
            assert "{" not in pages.learned.FIGURE.sub("", finding["text"])


def test_a_finding_shows_measured_values_while_its_claims_have_their_verdicts(pages: Any, tmp_path: Path) -> None:
    copied = ROOT / "results" / "mitterreiter2023"
    shutil.copytree(copied, tmp_path / "mitterreiter2023", ignore=shutil.ignore_patterns("deep*"))
    (finding,) = (
        each
        for each in pages.learned.read_findings()["routing"]
        if "mitterreiter2023/no-parse-tree-in-capsnet" in each["claims"]
    )
    files = list(tmp_path.glob("mitterreiter2023/dynamics/capsnet-static-desk-*.json"))
    mean = sum(read_json(path)["value"] for path in files) / len(files)
    assert pages.learned.learned(tmp_path, "routing").startswith(f"- {finding['text'].partition('{')[0]}{mean:.2f} %")
    for path in files:
        write_json(path, read_json(path) | {"value": 80.0 + 0.1 * read_json(path)["seed"]})
    forget_results(pages)
    page = pages.learned.learned(tmp_path, "routing")
    assert "holds**: Most of the variance of CapsNet's couplings does not depend on the image" in page
    assert not page.startswith("-")


def test_the_compute_spent_ends_with_its_sum(pages: Any, tmp_path: Path) -> None:
    for paper in ("mitterreiter2023", "sabour2017"):
        shutil.copytree(ROOT / "results" / paper, tmp_path / paper)
    forget_results(pages)
    *papers, total = (line.strip("| ").split(" | ") for line in pages.learned.compute_spent(tmp_path).splitlines()[2:])
    assert len(papers) == 2
    assert total[0] == "all"
    assert int(total[1]) == sum(int(each[1]) for each in papers)
    assert float(total[3]) == pytest.approx(sum(float(each[3]) for each in papers), abs=0.11)


def forget_results(pages: Any) -> None:
    """Result files are read once for all pages."""
    pages.all_evidence.cache_clear()
    pages.learned.claim_verdicts.cache_clear()


def test_a_page_without_an_end_and_an_unknown_part_are_refused(pages: Any) -> None:
    start = "<!-- made by scripts/docs_pages.py: {} -->"
    with pytest.raises(SystemExit, match=r"page.md asks for 'claim', which nobody makes"):
        pages.filled(f"{start.format('claim')}\nold\n<!-- end -->", {"claims": str}, "page.md")
    with pytest.raises(SystemExit, match=r"page.md has lost an '<!-- end -->'"):
        pages.filled(start.format("claims"), {"claims": str}, "page.md")
    filled = pages.filled(f"a\n{start.format('part x y')}\nold\n<!-- end -->\nz", {"part": "{}-{}".format}, "page.md")
    assert filled == f"a\n{start.format('part x y')}\n\nx-y\n\n<!-- end -->\nz"


def test_a_changed_result_changes_the_pages(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    parts = (
        "which-accuracy",
        "model-results capsnet",
        "routing-results dynamic",
        "speed",
        "claims-summary {}",
        "which-not",
        "large-images",
        "detection",
    )
    marks = "\n".join(f"<!-- made by scripts/docs_pages.py: {part} -->\n<!-- end -->" for part in parts)
    (tmp_path / "README.md").write_text(marks)
    for name in ("gu2021/table1", "bench"):
        shutil.copytree(ROOT / "results" / name, tmp_path / "results" / name)
    large, detected = (read_json(ROOT / "results" / f"{name}.json") for name in ("large-images", "detection-mnist"))
    large["rows"][0] |= {"images_per_second_median": 123.4, "peak_megabytes": 567.8}
    detected["rows"][-1]["reconstruction"] = 0.4321
    write_json(tmp_path / "results" / "large-images.json", large)
    write_json(tmp_path / "results" / "detection-mnist.json", detected)
    run = {"confusion": [], "environment": ENVIRONMENT | {"command": "x --train-images 12345 --epochs 1"}, "seed": 0}
    run |= {"size": "laptop", "test_images": 5000, "parameters": 7}
    accuracies = {"capsnet": 0.91, "convnet-avg": 0.97, "capsnet:routing=uniform": 0.909}
    write_json(
        tmp_path / "results" / "mnist-grid.json",
        {
            label: [run | {"model": label.partition(":")[0], "test_accuracy": share}]
            for label, share in accuracies.items()
        },
    )
    (text,) = pages.made_parts(tmp_path).values()
    assert "**Most accurate under this budget:** `convnet-avg`, 97.0 %." in text
    assert (
        "Undecided (one seed): the best capsule network here, `capsnet`, and the best plain one, `convnet-avg`" in text
    )
    assert "12,345 images of MNIST once" in text
    assert "| `capsnet` | 91.0 (90.2 to 91.8) | 7 |" in text
    assert "| `capsnet:routing=uniform` |" in text.partition("model-results")[2].partition("routing-results")[0]
    assert "| `capsnet:routing=uniform` |" not in text.partition("routing-results")[2]
    assert "CapsNet: AffNIST" in text
    assert f"| `capsnet` | {large['rows'][0]['parameters']:,} | 123 | 568 |" in text
    assert re.search(r"\| reconstructive, epsilon 0\.1 \| \d+% \| 0\.432 \|", text)
    assert "- hinton2018: nothing at all" in text
    claims = [len(load_spec(paper).claims) for paper in list_papers()]
    assert f"f {sum(claims)} claims in {sum(map(bool, claims))} papers" in text


def compared_networks() -> list[str]:
    """The networks of the command on the page of all routings."""
    (block,) = (block for block in blocks_in(ROOT / "docs" / "all-routings.md") if block.kind == "sh")
    (line,) = block.commands()
    return [word for word in line.split()[2:] if word.startswith(("sr-capsnet", "resnet20"))]


def test_the_comparison_of_all_routings_has_all_of_them_on_one_backbone() -> None:
    path = ROOT / "examples" / "all-routings.yaml"
    shared = read_yaml(path)
    assert path.read_text() in (ROOT / "docs" / "all-routings.md").read_text()
    routed, backbones, votes = set(), set(), set()
    for label in compared_networks():
        name, _, text = label.partition(":")
        own, options = parse_settings(name, text)
        settings = shared | own | {"options": shared["options"] | options}
        model = resolve(model=name, data="turntable", **settings).meta_model()
        backbones.add(str(model.features))
        if name == "sr-capsnet":
            routed.add(options.get("routing", "self-routing"))
            votes.add(str(type(model.capsules.layers[0].transform)))
    built_in = {
        each.name for each in routings if getattr(each.build, "func", each.build).__module__.startswith("torchcaps")
    }
    assert routed == built_in
    assert len(backbones) == 1
    assert len(votes) == 2, "self-routing has none"


def test_lines_of_code_leave_out_docstrings_comments_and_blank_lines(
    pages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = '"""One\n\ntwo."""\n\n# Why.\nA = """a\nb"""\n\n\ndef f():\n    """Return 1."""\n    return 1  # one\n'
    (tmp_path / "counted_module.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert pages.capabilities.lines_of_code(importlib.import_module("counted_module")) == 4


def test_the_comparison_of_all_routings_shows_the_best_head_first_and_differences(pages: Any, tmp_path: Path) -> None:
    environment = ENVIRONMENT | {"command": "torchcaps compare --epochs 2", "processor": "a processor"}
    run = {"size": "laptop", "test_images": 24300, "parameters": 7, "images_per_second": 1234.0}
    accuracies = {
        "sr-capsnet:routing=uniform,votes=vector": (0.80, 0.82, 0.81),
        "sr-capsnet": (0.90, 0.921, 0.91),
        "resnet20:head=max": (0.70, 0.72, 0.711),
        "resnet20": (0.85, 0.75, 0.83),
        "resnet20:schedule=one-cycle:0.003:0.1": (0.9,),  # with a worse accuracy on validation images
        "resnet20:head=max,schedule=one-cycle:0.003:0.1": (0.69, 0.71, 0.70),
    }
    found = {
        label: [
            run | {"seed": seed, "test_accuracy": share, "validation_accuracy": 1 - share, "environment": environment}
            for seed, share in enumerate(shares)
        ]
        for label, shares in accuracies.items()
    }
    write_json(tmp_path / "results" / "all-routings" / "cifar-10.json", found)
    text = pages.all_makers(tmp_path / "results")["all-routings"]("cifar-10")
    rows = [line.split(" | ")[:5] for line in text.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == [
        "| `self-routing`",
        "| `uniform`",
        "| plain: average pooling",
        "| plain: max pooling",
    ]
    assert [row[1] for row in rows] == ["0.01", "0.01", "0.01", "0.003"], "chosen on validation images"
    assert [row[4] for row in rows] == ["+10.03 ± 0.14", "baseline", "+0.00 ± 15.51", "-11.00 ± 0.00"]
    assert "2 epochs, 3 seeds, 24,300 test images" in text
    unclear = "no difference can be told: plain: average pooling."
    assert f"On test images: better than the baseline: `self-routing`; worse: plain: max pooling; {unclear}" in text
    assert (
        f"On validation images: better than the baseline: plain: max pooling; worse: `self-routing`; {unclear}" in text
    )
    nothing = pages.all_makers(tmp_path / "results")["all-routings"]("smallnorb-jpeg")
    assert nothing == "Not measured yet: the command above does it with `--data smallnorb-jpeg`."
