"""What is shown in a terminal cannot steer it."""

from cronsensus.cli.terminal import clean


def test_text_is_made_harmless() -> None:
    assert clean("a\x1b[31mb\x07c\x9bd\u202ee\ud800") == "a\\x1b[31mb\\x07c\\x9bd\\u202ee\\ud800"
    assert clean("one\ntwo\tthree") == "one\\ntwo\\tthree"
    assert clean("one\r\ntwo\tthree\x1b", lines=True) == "one\ntwo    three\\x1b"
    assert clean("日本 [bold] 🎉") == "日本 [bold] 🎉"
