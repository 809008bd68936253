-- name: insert_trail
-- types: space text
-- rows: moment bigint, actor text, action text, target text, why text, details text
-- Record an act: by which operator, on which target, and why. Race: none, an entry never changes.
INSERT INTO cronsensus_trail (namespace, at, "by", action, target, why, details)
{values: :space, given.moment, given.actor, given.action, given.target, given.why, given.details};
