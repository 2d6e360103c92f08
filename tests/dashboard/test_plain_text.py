from __future__ import annotations

from dashboard.data.plain_text import plain


def test_markup_of_others_is_shown_as_text():
    assert plain("a *b* [c](d) <i> $x$ :red[y]") == r"a \*b\* \[c\](d) \<i\> \$x\$ \:red\[y\]"


def test_plain_words_stay_as_they_are():
    assert plain("accepted 1.91 tokens per step, 95 %") == "accepted 1.91 tokens per step, 95 %"
