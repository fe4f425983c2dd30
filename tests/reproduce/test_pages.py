"""The report as pages and Markdown, from result files that the test writes."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.helpers.synthetic_results import TEXT, made_spec, write_made
from torchcaps.errors import TorchcapsError
from torchcaps.reproduce.estimate import shipped_speed, training_images
from torchcaps.reproduce.jobs import plan_jobs
from torchcaps.reproduce.report import PaperReport, describe_cost, find_specs, read_report, report_paper
from torchcaps.reproduce.report_html import write_site
from torchcaps.reproduce.report_markdown import write_markdown
from torchcaps.reproduce.results import read_result, save_result
from torchcaps.reproduce.spec import load_spec, parse_spec

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)


@pytest.fixture
def report(tmp_path: Path) -> PaperReport:
    """Claims that hold and one that does not, a curve, a saved picture, a warning and a note."""
    write_made(tmp_path, "table1/a", [98.0, 98.2, 98.1], images=10_000)
    write_made(tmp_path, "table1/b", [97.0, 97.1, 97.2], images=10_000)
    write_made(tmp_path, "table1/c", [98.0, 98.1, 98.2], images=10_000)
    write_made(
        tmp_path, "fig1/a", [None, None], details={"curve": [[0.1, 60.0], [0.2, 30.0]]}, warnings=("zero <gradients>",)
    )
    write_made(tmp_path, "fig1/b", [None], details={"curve": [[0.1, 50.0], [0.2, 20.0]]}, picture="b.png")
    (tmp_path / "made2020" / "fig1" / "b.png").write_bytes(PIXEL)
    (tmp_path / "made2020" / "notes.yaml").write_text("both: We looked for <a bug>.")
    return report_paper(made_spec(), tmp_path)


def test_overview_shows_every_claim_with_its_verdict(report: PaperReport, tmp_path: Path) -> None:
    page = write_site([report], tmp_path / "site").read_text()
    for kind, words in (("holds", "✓ holds"), ("fails", "✗ does not hold")):
        assert f"<span class='badge {kind}'>{words}</span>" in page
    assert page.count("<span class='badge") == len(made_spec().claims)
    assert "Of 5 claims, 5 are tested: 4 hold, 1 does not hold, 0 are undecided.</p>" in page
    assert "made2020.html#both-laptop" in page
    assert "We looked for &lt;a bug&gt;." in page


def test_page_of_a_paper_has_numbers_tests_warnings_and_captions(report: PaperReport, tmp_path: Path) -> None:
    write_site([report], tmp_path / "site")
    page = (tmp_path / "site" / "made2020.html").read_text()
    assert (
        "A &lt;script&gt; <b>&gt;</b> B (MNIST, Table 1): <b>holds</b>, difference 1.00 points, 95 % interval" in page
    )
    assert "(paired t interval over 3 seeds, p = 0.0033)</li>" in page
    assert "<p class='warning'>zero &lt;gradients&gt;</p>" in page
    assert "Profile laptop, 1 to 2 seeds, 2,000 training images, 1 epoch" in page
    assert "id='both-laptop'" in page
    contents = page[page.index("<nav class='contents'") : page.index("<h2 id='claims'>")]
    assert contents.count("<a href='#") == 1 + len(report.sections), "claims, and every table and figure"
    assert page.count("<details>") == len(report.claims), "comparisons are folded"
    assert page.count("<figure>") == 2, "curves, and the saved picture"
    assert base64.b64encode(PIXEL).decode() in page


def test_pages_are_escaped_and_self_contained(report: PaperReport, tmp_path: Path) -> None:
    write_site([report], tmp_path / "site")
    for path in (tmp_path / "site").iterdir():
        page = path.read_text()
        for foreign in ("<script", "<i>more", "capsules <b>", "<a bug", "<gradients"):
            assert foreign not in page
        links = re.findall(r"""(?:src|href|srcset)=['"]([^'"]*)['"]""", page)
        assert all(re.match(r"data:image/|(index|made2020)\.html|#", link) for link in links)
        assert {link[1:] for link in links if link.startswith("#")} <= set(re.findall(r"id='([^']*)'", page))
        assert "http" not in re.sub(r"base64,[^']*", "", page)
        assert "url(" not in page


def test_pages_are_deterministic(report: PaperReport, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_site([report], tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_markdown_has_the_same_content_and_its_figures(report: PaperReport, tmp_path: Path) -> None:
    index = write_markdown([report], tmp_path / "docs").read_text()
    assert "| **✗ does not hold** | A over B over C | made2020, text | profile laptop |" in index
    text = (tmp_path / "docs" / "made2020.md").read_text()
    assert "**Note:** We looked for &lt;a bug&gt;." in text
    assert "A &lt;script&gt; &gt; B (MNIST, Table 1): holds, difference 1.00 points" in text
    pictures = re.findall(r'(?:src|srcset)="([^"]*)"', text)
    assert len(pictures) == 4
    assert text.count("<details><summary>") == len(report.claims), "comparisons are folded"
    assert "not testable yet</summary>" not in text, "all claims were tested"
    assert all((tmp_path / "docs" / picture).is_file() for picture in pictures)


def test_further_profiles_and_tables_without_values_are_folded(tmp_path: Path) -> None:
    def pages() -> tuple[str, str]:
        report = report_paper(made_spec(), tmp_path)
        write_site([report], tmp_path / "site")
        write_markdown([report], tmp_path / "docs")
        return (tmp_path / "site" / "made2020.html").read_text(), (tmp_path / "docs" / "made2020.md").read_text()

    page, text = pages()
    assert page.count("<summary>Not measured yet. The paper&#x27;s values</summary>") == 1, "of table 1"
    assert text.count("<summary>Not measured yet. The paper's values</summary>") == 1
    folded = page[page.index("<details><summary>5 claims are not testable yet</summary>") :]
    assert folded[: folded.index("<h2 id='table1'>")].count("<li id='") == 5
    assert '<details markdown="1">\n<summary>5 claims are not testable yet</summary>\n\n- ' in text
    assert "<details><summary>" not in text, "md_in_html ends a folded part where a nested one ends"
    for profile in ("laptop", "desk"):
        write_made(tmp_path, "table1/a", [98.0], profile=profile)
    page, text = pages()
    assert "Not measured yet. The paper" not in page + text
    assert page.count("<h2 id='table1'>") == text.count("## Table 1") == 1
    assert page.count("<summary>The same in profile desk</summary>") == 1
    folded = text[text.index('<details markdown="1">\n<summary>The same in profile desk</summary>\n\n') :]
    assert "| A &lt;script&gt; | 98.00 (paper 99.2) |" in folded[: folded.index("\n\n</details>\n")]
    assert text.count("Profile laptop, 1 seed") == 1, "is open"


def test_a_missing_figure_raises_a_one_sentence_error(tmp_path: Path) -> None:
    write_made(tmp_path, "fig1/b", [None], picture="gone.png")
    with pytest.raises(TorchcapsError, match=r"gone\.png cannot be read, but a result names it"):
        report_paper(made_spec(), tmp_path)


@pytest.mark.parametrize("name", ["../table1/a-laptop-seed0.json", "../../secret.png", "notes.txt"])
def test_a_figure_outside_the_results_folder_is_refused(tmp_path: Path, name: str) -> None:
    write_made(tmp_path, "fig1/b", [None], picture=name)
    with pytest.raises(TorchcapsError, match="names an image that is not next to it"):
        report_paper(made_spec(), tmp_path)


def test_an_empty_report_says_so(tmp_path: Path) -> None:
    page = write_site([report_paper(made_spec(), tmp_path)], tmp_path / "site").read_text()
    assert page.count("<span class='badge missing'>… not testable yet</span>") == 5
    assert page.count("<p class='gap'>all cells: not measured yet</p>") == 5
    assert "Nothing of this was measured yet." in page
    with pytest.raises(TorchcapsError, match="has no results: create some"):
        read_report(tmp_path)
    with pytest.raises(TorchcapsError, match="does not exist: run 'torchcaps reproduce' first"):
        find_specs(tmp_path / "nowhere")


def test_results_of_an_unknown_paper_are_refused(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0])
    with pytest.raises(TorchcapsError, match="paper 'made2020' is unknown"):
        find_specs(tmp_path)


def test_the_report_command_writes_the_site(tmp_path: Path, torchcaps_command: Command) -> None:
    (made,) = write_made(tmp_path / "made", "table1/a", [79.5], images=1000)
    job = plan_jobs(load_spec("gu2021"), "laptop", tables=["table1"], cells=["capsnet-affnist"], seeds=1)[0]
    place = {"paper": "gu2021", "table": "table1", "cell": job.name, "fingerprint": job.fingerprint()}
    save_result(job.result_file(tmp_path / "results"), read_result(made).model_copy(update=place))
    done = torchcaps_command("report", "--markdown", "docs")
    assert done.returncode == 0, done.stderr
    assert "Report: site/report/index.html" in done.stdout
    assert "79.50" in (tmp_path / "site" / "report" / "gu2021.html").read_text()
    assert "79.50 (paper 79)" in (tmp_path / "docs" / "gu2021.md").read_text()
    job.result_file(tmp_path / "results").write_text("{}")
    with pytest.raises(TorchcapsError, match="is not the result of a cell: paper: Field required"):
        read_report(tmp_path / "results")


STRICT = parse_spec(TEXT)  # with the default competence conditions


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    """Results of profile laptop from a network that misses its condition, and one seed of profile desk."""
    write_made(tmp_path, "table1/a", [64.1, 64.3, 64.2], images=10_000)
    write_made(tmp_path, "table1/b", [97.5, 97.6, 97.7], images=10_000)
    return tmp_path


def test_incompetent_networks_never_show_as_a_decision(weak: Path) -> None:
    report = report_paper(STRICT, weak)
    write_markdown([report], weak / "docs")
    index = write_site([report], weak / "site").read_text()
    for page in (index, *(path.read_text() for folder in ("docs", "site") for path in (weak / folder).glob("*.*"))):
        assert "✓" not in page
        assert "✗" not in page
    assert "None of 5 claims is testable yet, because networks are missing or not as good as the paper's" in index
    assert "A &lt;script&gt; (MNIST): 35.8 % error, needs 1.7 %" in index
    assert (
        "| A beats B | made2020, Table 1 | A &lt;script&gt; (MNIST): 35.8 % error, needs 1.7 % |"
        in (weak / "docs" / "index.md").read_text()
    )
    (smoke, *_) = report.sections
    assert smoke.smoke == (
        "Smoke profile: shows that the experiment runs, decides nothing. Competent or exempt: B (MNIST)."
    )
    assert smoke.smoke in (weak / "site" / "made2020.html").read_text()
    assert f"*{smoke.smoke}*" in (weak / "docs" / "made2020.md").read_text()


def test_competent_networks_of_the_laptop_profile_decide(weak: Path) -> None:
    write_made(weak, "table1/a", [99.0, 99.1, 99.2], images=10_000)
    write_made(weak, "table1/c", [97.0, 97.1, 97.2], images=10_000)
    report = report_paper(STRICT, weak)
    assert {verdict.verdict for _, verdict in report.claims} == {"holds"}
    assert report.sections[0].smoke == ""


def test_a_table_outside_the_smoke_profile_says_which_cell_is_not_competent(weak: Path) -> None:
    write_made(weak, "table1/a", [64.0], profile="desk")
    section = report_paper(STRICT, weak).sections[1]
    assert (section.profile, section.smoke) == ("desk", "")
    assert section.table is not None
    assert section.table.footnotes[0] == "Not competent: A <script> (MNIST): 36 % error, needs 1.7 %."


def test_the_largest_testable_profile_decides(weak: Path) -> None:
    def deciding() -> tuple[str, str, str]:
        profile, verdict = report_paper(STRICT, weak).claims[0]
        return profile, verdict.verdict, verdict.few_seeds

    assert deciding() == ("laptop", "not testable yet", "")
    write_made(weak, "table1/a", [64.0], profile="paper")
    assert deciding() == ("laptop", "not testable yet", ""), "profile paper has no result of B"
    write_made(weak, "table1/a", [99.2, 99.3, 99.1])
    assert deciding() == ("laptop", "holds", "")
    for cell, value in (("a", 98.5), ("b", 99.1)):
        write_made(weak, f"table1/{cell}", [value], profile="paper")
    assert deciding() == ("laptop", "holds", ""), "one seed does not replace three"
    for cell, values in (("a", [99.0, 98.4, 98.9]), ("b", [98.8, 98.5, 98.9])):
        write_made(weak, f"table1/{cell}", values, profile="desk")
    assert deciding() == ("desk", "undecided", ""), "undecided or not, desk is before laptop"


def test_remaining_jobs_are_those_of_untestable_claims_in_profile_desk(weak: Path) -> None:
    report = report_paper(STRICT, weak)
    cells = {(job.name, job.seed) for job in report.remaining}
    assert {job.profile for job in report.remaining} == {"desk"}
    assert cells == {(cell, seed) for cell in "abc" for seed in range(3)}
    trainings = {each.path(weak): each.config for job in report.remaining for each in job.trainings}
    assert len(trainings) == 6, "B and C share theirs"
    speeds = [(training_images(each), shipped_speed(each, 1)) for each in trainings.values()]
    assert report.cost.core_hours == pytest.approx(sum(images / speed for images, speed in speeds if speed) / 3600)
    assert report.cost.core_hours > 0.1
    assert report.cost.unknown == sum(speed is None for _, speed in speeds)
    page = write_site([report], weak / "site").read_text()
    assert f"testing them takes {describe_cost(report.cost)}." in page
    assert f"<td>{report.cost}</td>" in page.replace("&gt;", ">")
    write_made(weak, "table1/a", [99.2, 99.3, 99.1], profile="desk")
    assert len(report_paper(STRICT, weak).remaining) == 6


def test_each_untestable_claim_has_its_own_cost(weak: Path) -> None:
    report = report_paper(STRICT, weak)
    untestable = [each.name for _, each in report.claims if each.verdict == "not testable yet"]
    assert list(report.claim_costs) == untestable
    assert len(untestable) > 1
    hours = [cost.core_hours for cost in report.claim_costs.values()]
    assert max(hours) <= report.cost.core_hours < sum(hours), "claims share trainings"
    assert any(cost != report.cost for cost in report.claim_costs.values()), "but not all of them"
    index = write_markdown([report], weak / "docs").read_text()
    rows = index.partition("| missing | core-hours |")[2].splitlines()[2:]
    assert [row.split(" | ")[-1].removesuffix(" |") for row in rows] == [
        str(cost) for cost in report.claim_costs.values()
    ]
