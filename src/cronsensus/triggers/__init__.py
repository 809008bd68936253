"""When jobs run: pure rules that give nominal times.

``cron`` by wall clock and calendar, ``every`` at a fixed distance, ``at`` once, ``any_of`` (or ``a | b``) for several.
One question per file: ``base`` what a trigger is, ``fields`` what a cron text says, ``wall`` which wall-clock times
match it, ``dst`` which instants those are, ``zones`` what a zone's name means, ``cron_words`` how it all reads in
English, ``dialects`` and ``field_orders`` what a cron text means to other programs, ``notes`` what is to know of one.
"""

from cronsensus.triggers.at import at
from cronsensus.triggers.base import Trigger, any_of
from cronsensus.triggers.cron import cron
from cronsensus.triggers.every import every
from cronsensus.triggers.stored import trigger_from_json

__all__ = ["Trigger", "any_of", "at", "cron", "every", "trigger_from_json"]
