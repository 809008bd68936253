"""Jobs whose time another program keeps: that program goes on scheduling, the store decides which process acts.

``Participant`` is what every such integration stands on.
"""

from cronsensus.external.participant import Participant, Won

__all__ = ["Participant", "Won"]
