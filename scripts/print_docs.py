"""Print the documents that are made from the code: docs/settings.md."""

from pathlib import Path

from recollect.config.docs import render_settings_page

if __name__ == "__main__":
    page = Path(__file__).parent.parent / "docs" / "settings.md"
    page.write_text(render_settings_page(), encoding="utf-8")
    print(f"wrote {page.name}")
