"""What is shown in a terminal cannot steer it."""

from cronsensus.cli.terminal import clean_text


def test_text_is_made_harmless() -> None:
    assert clean_text("a\x1b[31mb\x07c\x9bd\u202ee\ud800") == "a\\x1b[31mb\\x07c\\x9bd\\u202ee\\ud800"
    assert clean_text("one\ntwo\tthree") == "one\\ntwo\\tthree"
    assert clean_text("one\r\ntwo\tthree\x1b", lines=True) == "one\ntwo    three\\x1b"
    assert clean_text("日本 [bold] 🎉") == "日本 [bold] 🎉"
