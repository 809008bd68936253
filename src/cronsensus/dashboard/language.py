"""The language of a page, and its texts of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from markupsafe import Markup

from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.dashboard.chinese_schedules import schedule_in_chinese
from cronsensus.dashboard.chinese_sentences import Chinese, duration_in_chinese, reason_in_chinese
from cronsensus.insight.definition_words import value_text
from cronsensus.insight.sentences import Language, Sentence
from cronsensus.insight.summaries import short_key, took, why_ended
from cronsensus.insight.time_words import brief_duration, exact_time, offset_text
from cronsensus.model.batch import shown_key
from cronsensus.model.occurrence import Occurrence, RunView
from cronsensus.model.states import Origin, State
from cronsensus.timing.instants import EARLIEST_READ, LATEST
from cronsensus.triggers.base import Trigger

LANGUAGES = ("en", "zh")
COOKIE = "cronsensus_lang"


def choose_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """Return the language of a page: by the query, else by the cookie, else the browser's preference."""
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


class _InZone(Language):
    """Writes moments in a zone; mixed in before a language."""

    def __init__(self, zone: tzinfo) -> None:
        super().__init__()
        self._zone = zone

    def format_field(self, value: Any, format_spec: str) -> str:
        return minute(value, self._zone) if isinstance(value, datetime) else super().format_field(value, format_spec)


class _ChineseInZone(_InZone, Chinese):
    pass


class Words:
    """Writes texts in a language, and times in a zone."""

    def __init__(self, language: str, now: datetime | None = None, zone: tzinfo = UTC) -> None:
        self.language = language
        self.zone = zone
        self._now = now
        self._sentences = _ChineseInZone(zone) if language == "zh" else _InZone(zone)

    def __call__(self, text: str, *values: object) -> str:
        """Return ``text`` in this language, with ``values`` in the places of ``{0}``, ``{1}``."""
        translated = CHINESE.get(text, text) if self.language == "zh" else text
        if not values:
            return translated
        if any(hasattr(value, "__html__") for value in values):
            translated = Markup(translated)  # noqa: S704 - our own text; its values are escaped
        return translated.format(*(self(value) if isinstance(value, State) else value for value in values))

    def sentence(self, sentence: Sentence | str) -> str:
        """Return a sentence of ``insight`` in this language."""
        return self.reason(sentence) if isinstance(sentence, str) else self._sentences.render(sentence)

    def reason(self, text: str) -> str:
        """Return a reason of the ledger; texts of people and jobs stay unchanged."""
        return reason_in_chinese(text) if self.language == "zh" else text

    def why_ended(self, occurrence: Occurrence) -> str:
        """Return the error of a failed run on a line, or else the reason of its state."""
        return (
            why_ended(occurrence)
            if occurrence.state is State.FAILED and occurrence.error
            else self.reason(why_ended(occurrence))
        )

    def schedule(self, trigger: Trigger) -> str:
        """Return a schedule in words."""
        return schedule_in_chinese(trigger) if self.language == "zh" else trigger.describe()

    def value(self, value: Any) -> str:
        """Return the value of a job's option."""
        if isinstance(value, Trigger):
            return self.schedule(value)
        return self.duration(value_text(value)) if isinstance(value, timedelta) else self(value_text(value))

    def relative(self, instant: datetime) -> str:
        """Return how far ``instant`` is from now."""
        if instant >= LATEST:
            return self("when it is woken")
        distance = instant - (self._now or instant)
        if abs(distance) < timedelta(seconds=1):
            return self("now")
        return (
            self("in {0}", self.coarse(distance))
            if distance > timedelta(0)
            else self("{0} ago", self.coarse(-distance))
        )

    def duration(self, text: str) -> str:
        """Return a duration that is text already."""
        return duration_in_chinese(text) if self.language == "zh" else text

    def coarse(self, duration: timedelta) -> str:
        """Return a duration without parts of a second where it is longer than ten."""
        return self.duration(coarse(duration))

    def took(self, occurrence: Occurrence | RunView, now: datetime) -> str:
        """Return how long something took, or takes so far."""
        text = took(occurrence, now)
        so_far = text.removesuffix(" so far")
        return self("{0} so far", self.duration(so_far)) if so_far != text else self.duration(text)

    def what_for(self, occurrence: Occurrence) -> str:
        """Return the nominal time of a run, or what else it was made for."""
        if occurrence.scheduled_for is not None:
            text = minute(occurrence.scheduled_for, self.zone)
            return text if occurrence.origin is Origin.SCHEDULE else self("{0} ({1})", text, self(occurrence.origin))
        if occurrence.parent is not None:
            return self("{0} (item of {1})", short_key(shown_key(occurrence.key)), occurrence.parent)
        if occurrence.origin is Origin.MANUAL:
            return self("by hand")
        return self("{0} ({1})", short_key(occurrence.key), self(occurrence.origin))

    def minute(self, instant: datetime) -> str:
        """Return an instant to the second."""
        return minute(instant, self.zone)

    def precise(self, instant: datetime) -> str:
        """Return an instant to the second with its offset, for tooltips."""
        return exact_time(instant.replace(microsecond=0), self.zone)

    def clock(self, instant: datetime) -> str:
        """Return the time of day to the millisecond, with its date unless that is today's."""
        return self._day(instant) + clock(instant, self.zone)

    def short(self, instant: datetime) -> str:
        """Return the time of day to the second, or to the minute where that is all, with its date unless today's."""
        return self._day(instant) + short(instant, self.zone)

    def hour(self, instant: datetime) -> str:
        """Return the time of day to the minute."""
        return hour_of(instant, self.zone)

    def day(self, instant: datetime) -> str:
        """Return the day and the time of day to the minute."""
        return day_of(instant, self.zone)

    def weekday(self, instant: datetime) -> str:
        """Return the day of the week."""
        return self(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[instant.astimezone(self.zone).weekday()])

    def tick(self, instant: datetime, span: timedelta) -> str:
        """Return a moment of an axis that is so long: the day, or the hour of one of two days at most."""
        local = instant.astimezone(self.zone)
        return f"{local:%m-%d}" if span > timedelta(days=2) else f"{local:%m-%d %H:%M}"

    def _day(self, instant: datetime) -> str:
        day = instant.astimezone(self.zone).date()
        if self._now is None or day == (today := self._now.astimezone(self.zone).date()):
            return ""
        return f"{day:%m-%d} " if day.year == today.year else f"{day:%Y-%m-%d} "


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
    """Return an instant to the second; with its offset in an hour that a clock change gives twice."""
    if tz is UTC:  # a page has hundreds of them
        return f"{instant.astimezone(UTC).isoformat(' ', 'seconds')[:19]}Z"
    local = instant.astimezone(tz)
    is_ambiguous = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return local.isoformat(" ", "seconds")[:19] + (f" {offset_text(local)}" if is_ambiguous else "")


def read_moment(text: str, now: datetime, tz: tzinfo) -> datetime | None:
    """Return the instant of a typed text: with a date or of today, with an offset or in a zone."""
    for candidate in (text, f"{now.astimezone(tz):%Y-%m-%d}T{text}"):
        try:
            moment = datetime.fromisoformat(candidate)
            instant = (moment if moment.tzinfo is not None else moment.replace(tzinfo=tz)).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        return instant if instant >= EARLIEST_READ else None
    return None
