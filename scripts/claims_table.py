"""Write the verdicts on all claims into README.md and docs/claims.md: python scripts/claims_table.py

What stands between the two marks is made from the result files; a test holds it to them.
"""

from __future__ import annotations

import re
from pathlib import Path

from torchcaps.reproduce.markdown import claims_list, claims_table, summary_markdown
from torchcaps.reproduce.report import Judged, judge_folder
from torchcaps.reproduce.wording import HOW_JUDGED

ROOT = Path(__file__).parents[1]
START, END = "<!-- claims: made by scripts/claims_table.py -->", "<!-- end of claims -->"
NOTHING = "No results yet: `torchcaps reproduce` makes them, and `python scripts/claims_table.py` writes this part."
Claims = dict[str, Judged]


def readme_part(claims: Claims) -> str:
    """How many claims hold, and those that do not."""
    against = {
        paper: [claim for claim in judged if claim[1].verdict == "does not hold"] for paper, judged in claims.items()
    }
    parts = [summary_markdown(claims, link="docs/claims.md#{}")]
    if any(against.values()):
        parts.append(f"What does not hold in these results:\n\n{claims_table(against)}")
    return "\n\n".join([*parts, "[All claims, with numbers and tests](docs/claims.md)."])


def docs_part(claims: Claims) -> str:
    """All claims with their numbers."""
    papers = [f"## {paper}\n\n{claims_list(judged)}" for paper, judged in claims.items() if judged]
    return "\n\n".join([summary_markdown(claims, link="#{}"), HOW_JUDGED, *papers])


PARTS = {"README.md": readme_part, "docs/claims.md": docs_part}


def updated(name: str, claims: Claims, root: Path = ROOT) -> str:
    """A file with its part made anew."""
    text = (root / name).read_text(encoding="utf-8")
    if not re.search(f"{re.escape(START)}.*{re.escape(END)}", text, re.DOTALL):
        raise SystemExit(f"{name} has lost its marks: put '{START}' and '{END}' where the claims belong")
    measured = any(judgement.measured for judged in claims.values() for _, judgement in judged)
    part = PARTS[name](claims) if measured else NOTHING
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{part}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    claims = judge_folder(ROOT / "results")
    for name in PARTS:
        (ROOT / name).write_text(updated(name, claims), encoding="utf-8")


if __name__ == "__main__":
    main()
