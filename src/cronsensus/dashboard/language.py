"""Which language a page speaks, and how it says times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from markupsafe import Markup

from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.dashboard.chinese_schedules import schedule_in_chinese
from cronsensus.dashboard.chinese_sentences import Chinese
from cronsensus.insight.sentences import ENGLISH, Sentence
from cronsensus.insight.time_words import brief_duration, exact_time
from cronsensus.model.states import State
from cronsensus.timing.instants import EARLIEST_READ, LATEST
from cronsensus.triggers.base import Trigger

LANGUAGES = ("en", "zh")
COOKIE = "cronsensus_lang"
_CHINESE = Chinese()


def choose_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """Return the language of a page: asked for, or kept in the cookie, or what the browser likes best."""
    for wanted in (asked, kept):
        if wanted in LANGUAGES:
            return str(wanted)
    best, weight = "en", 0.0
    for part in accepted[:500].split(","):
        tag, _, quality = part.partition(";")
        name = tag.strip().lower().partition("-")[0]
        try:
            value = float(quality.partition("=")[2]) if quality else 1.0
        except ValueError:
            continue
        if name in LANGUAGES and value > weight:
            best, weight = name, value
    return best


class Words:
    """Says things in one language."""

    def __init__(self, language: str, now: datetime | None = None) -> None:
        self.language = language
        self._now = now

    def __call__(self, text: str, *values: object) -> str:
        """Return ``text`` in this language, with ``values`` in the places of ``{0}``, ``{1}``."""
        translated = CHINESE.get(text, text) if self.language == "zh" else text
        if not values:
            return translated
        if any(hasattr(value, "__html__") for value in values):
            translated = Markup(translated)  # noqa: S704 - ours; what it is formatted with is escaped
        return translated.format(*(self(value) if isinstance(value, State) else value for value in values))

    def sentence(self, sentence: Sentence | str) -> str:
        """Return a sentence of ``insight`` in this language."""
        return (_CHINESE if self.language == "zh" else ENGLISH).render(sentence)

    def schedule(self, trigger: Trigger) -> str:
        """Return a schedule in words."""
        return schedule_in_chinese(trigger) if self.language == "zh" else trigger.describe()

    def relative(self, instant: datetime) -> str:
        """Return how far ``instant`` is from now."""
        if instant >= LATEST:
            return self("when it is woken")
        distance = instant - (self._now or instant)
        if abs(distance) < timedelta(seconds=1):
            return self("now")
        return self("in {0}", coarse(distance)) if distance > timedelta(0) else self("{0} ago", coarse(-distance))


def coarse(duration: timedelta) -> str:
    """Return a duration without parts of a second where it is longer than ten."""
    return brief_duration(
        duration if duration < timedelta(seconds=10) else timedelta(seconds=round(duration.total_seconds()))
    )


def clock(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return the time of day to the millisecond."""
    local = instant.astimezone(tz)
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"


def short(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return the time of day to the second, or to the minute where that is all."""
    local = instant.astimezone(tz)
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def hour_of(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return the time of day to the minute."""
    return f"{instant.astimezone(tz):%H:%M}"


def day_of(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return the day and the time of day to the minute."""
    return f"{instant.astimezone(tz):%Y-%m-%d %H:%M}"


def minute(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return an instant to the second, exactly."""
    if tz is UTC:  # a page says hundreds of them
        return f"{instant.astimezone(UTC).isoformat(' ', 'seconds')[:19]}Z"
    return exact_time(instant.replace(microsecond=0), tz)


def read_moment(text: str, now: datetime, tz: tzinfo) -> datetime | None:
    """Return the instant that somebody typed: with a date or of today, with an offset or in a zone."""
    for written in (text, f"{now.astimezone(tz):%Y-%m-%d}T{text}"):
        try:
            found = datetime.fromisoformat(written)
            instant = (found if found.tzinfo is not None else found.replace(tzinfo=tz)).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        return instant if instant >= EARLIEST_READ else None
    return None
