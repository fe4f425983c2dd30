"""The papers' tables and figures: what is in them (specs), how each number is measured, the runner, the report."""
