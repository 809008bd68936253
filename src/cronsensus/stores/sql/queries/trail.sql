-- name: insert_trail
-- types: space text
-- rows: moment bigint, who text, act text, what text, because text, more text
-- Record an act: by which operator, on which target, and why. Race: none, an entry never changes.
INSERT INTO cronsensus_trail (namespace, at, "by", action, target, why, details)
{values: :space, given.moment, given.who, given.act, given.what, given.because, given.more};
