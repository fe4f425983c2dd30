"""The page that shows all explanations: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from torchcaps.files import write_text

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.7rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .3rem; }
figure { margin: 1rem 0; overflow-x: auto; }
img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
p { margin: .3rem 0; }
footer { margin-top: 3rem; font-size: .85rem; opacity: .75; }
code { overflow-wrap: anywhere; }
"""


def write_page(folder: Path, report: dict[str, Any]) -> Path:
    """Write index.html beside the figures that the report names."""
    environment = report["environment"]
    sections = [_section(folder, name, each) for name, each in report["explanations"].items()]
    skipped = "".join(
        f"<li>{html.escape(name)}: {html.escape(reason)}</li>" for name, reason in report["skipped"].items()
    )
    title = f"What {html.escape(report['title'])} holds"
    page = (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>torchcaps: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>{html.escape(report['about'])}</p>\n" + "\n".join(sections)
    )
    if skipped:
        page += f"\n<h2>Left out</h2>\n<ul>{skipped}</ul>"
    page += (
        f"\n<footer>Made by <code>{html.escape(environment['command'])}</code>, torch "
        f"{html.escape(str(environment['versions']['torch']))}, "
        f"commit {html.escape(str(environment['commit'])[:12])}.</footer>\n"
        "</body>\n</html>\n"
    )
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _section(folder: Path, name: str, explanation: dict[str, Any]) -> str:
    figures = []
    for file in explanation["files"]:
        picture = base64.b64encode((folder / file).read_bytes()).decode()
        figures.append(f"<figure><img alt='{html.escape(file)}' src='data:image/png;base64,{picture}'></figure>")
    return (
        f"<h2>{html.escape(name.capitalize())}</h2>\n<p>{html.escape(explanation['sees'])}</p>\n"
        f"<p><b>Found:</b> {html.escape(explanation['finding'])}.</p>\n" + "\n".join(figures)
    )
