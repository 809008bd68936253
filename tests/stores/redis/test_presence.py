"""What the looks of one handle conclude from signs, each connection by itself."""

import socket

from cronsensus.stores.redis.redis_presence import PresenceObserver


def test_signs_are_missed_only_through_the_connection_that_saw_them() -> None:
    observer = PresenceObserver()
    with socket.socket() as one, socket.socket() as another:
        assert observer.note_signs(one, "2", (["s1", "s2"], [])) == ()
        assert observer.known == "2"
        assert observer.note_signs(another, "2", (["s2"], [("s1", 1, False)])) == ()
        assert observer.note_signs(one, "2", (["s2"], [("s1", 1, False)])) == ("s1",)
        assert observer.note_signs(one, "2", (["s2", "s1"], [])) == ()
        assert observer.note_signs(one, "2", (["s2"], [])) == ()  # it is not asked for any more
        assert observer.note_signs(one, "2", (["s2"], [("s1", 1, False)])) == ()


def test_a_connection_that_was_not_asked_yet_is_asked_with_the_next_look() -> None:
    observer = PresenceObserver()
    with socket.socket() as one, socket.socket() as another:
        observer.note_signs(one, "2", ([], []))
        observer.note_signs(one, "2", None)
        assert observer.known == "2"
        observer.note_signs(another, "2", None)
        assert observer.known == ""


def test_a_refusal_is_taken_until_there_is_another_connection() -> None:
    observer = PresenceObserver()
    with socket.socket() as one, socket.socket() as another:
        known = []
        for through, signs in ((one, "refused"), (one, None), (another, None)):
            assert observer.note_signs(through, "2", signs) == ()
            known.append(observer.known)
    assert known == [False, False, ""]
