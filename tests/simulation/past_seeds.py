"""Seeds that once broke a promise, and what they found. They are replayed for ever.

A seed means what it means for one version of the code, so an old one may tell another story by now; the mistake itself
lives on in ``ablations``, where the simulation has to find it again. All of these are from before 28 November 2026,
when each thing that draws chance got a source of its own (``cluster.chance``): since then they are nights like others.
"""

PAST_SEEDS = {
    12: "the result of a run that returned because it was told that its lease is lost was accepted as a success",
    435: "a claim was carried out after its node had given it up, and nobody ran what it won",
    51719: "the same, and the patience of the judge hid it",
    20729: "after a clock that was set back a job was retired and defined again, and times between had no verdict",
    28480: "a short renewal that was given up came late and made an idle node's lease short",
    301456: "the same, and the node trusted a lease of ten minutes that lasted ten seconds",
    402423: "the judge held a run to at most once although its definition was another when it was cut off",
    1286: "a late renewal made the lease of a working node as long as an idle one's, and delayed the takeover",
    2265: "a node with all hands full did not look for what was due to be fired",
    49: "the audit took two runs for one at a time, by a clock that had been set back",
    702: "the judge disagreed with the store about the very microsecond in which a lease ends",
    51504: "a keeper took its node for idle while it adopted the runs of a claim that was carried out late",
    4400: "a plan was made just before the store's clock was set back",
    7005740: "a node whose store hung was not told that a claim had made its lease short, and ran past it",
    36: "the same as 5003, for a start that jitter delays",
    5003: "a run was started too early, by what a fast clock made of a look that was long ago",
}
