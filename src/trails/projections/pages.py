"""HTML pages for people, without scripts and without anything from elsewhere.

The policy of a page allows its own style, by its digest, and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8886;--soft:#8882;--link:#06c}
@media(prefers-color-scheme:dark){:root{--link:#6bf}}
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:0 auto;padding:2rem 1rem}
a{color:var(--link)}h1,h2,h3{line-height:1.25}h2{margin-top:2.5rem}
pre,code{font:.9em/1.5 ui-monospace,monospace}code{overflow-wrap:anywhere}
pre{background:var(--soft);padding:.75rem 1rem;border-radius:.4rem;overflow-x:auto}
table{border-collapse:collapse;display:block;overflow-x:auto}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0}
th,td{border-bottom:1px solid var(--line)}
td.count{text-align:right}nav{border-bottom:1px solid var(--line);padding-bottom:.5rem}
nav a{margin-right:1rem}
"""

HTML: Final = "text/html; charset=utf-8"
_DIGEST: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()
PAGE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}
_NAVIGATION: Final = (("/", "Server"), ("/docs", "Documentation"), ("/errors", "Errors"))


def project_page(title: str, body: str) -> str:
    """A page with a title, and a body that is HTML already."""
    links = "".join(f'<a href="{path}">{name}</a>' for path, name in _NAVIGATION)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><nav>{links}</nav>{body}</body></html>"
    )
