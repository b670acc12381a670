"""Writes docs/measurements.md and the generated tables again."""

from bench.report.pages import write_page

if __name__ == "__main__":
    write_page()
