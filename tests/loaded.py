"""What a browser would fetch from elsewhere for a page: nothing, for every page that this workbook writes."""

import re
from html.parser import HTMLParser

_STYLE_LOADS = re.compile(r"""(?:@import\s+(?!url)|url\()\s*['"]?([^'")\s;]+)""")
_LOADING = {"href": {"link"}, "data": {"object"}, "poster": {"video"}, "srcset": {"img", "source"}}


def from_elsewhere(html):
    """Return the addresses of other hosts that a browser loads for this page: scripts, styles, images, frames.

    Links that wait for a click are not among them.
    """
    finder = _Loads()
    finder.feed(html)
    return [address for address in finder.addresses if re.match(r"(\w+:)?//", address)]


class _Loads(HTMLParser):
    """Collects the addresses that tags and styles of a page make a browser fetch."""

    def __init__(self):
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag, attributes):
        self._in_style = tag == "style"
        for name, value in attributes:
            if name == "style":
                self._styles(value or "")
            elif name == "src" or tag in _LOADING.get(name, ()):
                self.addresses.append((value or "")[:200])

    def handle_endtag(self, tag):
        self._in_style = self._in_style and tag != "style"

    def handle_data(self, data):
        if self._in_style:
            self._styles(data)

    def _styles(self, text):
        self.addresses += [address[:200] for address in _STYLE_LOADS.findall(text)]
