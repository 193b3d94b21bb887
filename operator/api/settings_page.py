"""The table of the routers' settings in docs/operations.md: `make crd` writes it, `make check` compares it.

Process: `python -m octavo.operator.api.settings_page`, a filter from stdin to stdout.
"""

import sys

from octavo.shared.router_settings import SETTINGS, Setting

BEGIN, END = "<!-- settings of routers: `make crd` -->\n", "<!-- end -->\n"
HEAD = "| field | flag of `octavo router` | default | meaning |\n| --- | --- | --- | --- |\n"


def updated(page: str) -> str:
    """The page with the present table between the marks. Raises ValueError: a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + begin + HEAD + "".join(map(_row, SETTINGS.values())) + end + after


def _row(setting: Setting) -> str:
    default = setting.kind.to_field(setting.default)
    text = str(default).lower() if isinstance(default, bool) else default
    shown = "none" if text == [] else f"`{text}`"
    meaning = setting.description.replace("|", r"\|").replace("<", r"\<")
    return f"| `router.{setting.path}` | `--{setting.flag}` | {shown} | {meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(updated(sys.stdin.read()))
