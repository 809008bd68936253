import subprocess
import sys

import pytest

from cronsensus.errors import Cancel, CronsensusError, Retry, RunFailed, Skip


class Again(Retry):
    pass


class Documented(Skip):
    """Nothing came.

    And more.
    """


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Again(), "Try this occurrence again later, within the job's retries."),
        (Documented(), "Nothing came."),
        (Cancel("enough"), "enough"),
    ],
)
def test_an_error_without_a_message_says_the_first_line_of_its_class(error, text):
    assert str(error) == text


def test_a_subclass_that_forgets_super_has_what_its_class_has():
    class Later(Retry):
        def __init__(self, why):
            self.why = why

    class Failed(RunFailed):
        def __init__(self):
            pass

    assert Later("x").after is None
    assert Failed().occurrence is None


def test_without_docstrings_an_error_says_its_name():
    code = "from cronsensus.errors import Skip; print(Skip())"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Skip"


def test_every_error_is_told_apart_by_its_own_first_line():
    kinds = [CronsensusError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind for kind in kinds if kind.__module__ == "cronsensus.errors"}
    assert len({str(kind()) for kind in ours}) == len(ours)
