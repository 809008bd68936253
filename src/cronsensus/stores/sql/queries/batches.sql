-- Batches: their items, their waking and their completion.
-- Aliases: o: occurrences, b: the batch, j: jobs. Words in braces and `given` are explained in queries.py.

-- part: batch_level
3 * o.priority + 2

-- part: is_item
o.parent = :batch

-- name: children
-- types: size bigint
-- Read the state of a batch, and count its items by state, each up to a size. Race: two items end at once; each node counts after its commit, so the later one finds no open item.
SELECT b.state, b.listed,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: items}
        WHERE {part: is_item} AND o.state = 'pending' LIMIT :size) AS counted) AS pending,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: items}
        WHERE {part: is_item} AND o.state = 'running' LIMIT :size) AS counted) AS running,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: items}
        WHERE {part: is_item} AND o.state = 'succeeded' LIMIT :size) AS counted) AS succeeded,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: items}
        WHERE {part: is_item} AND o.state = 'failed' LIMIT :size) AS counted) AS failed,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: items}
        WHERE {part: is_item} AND o.state = 'cancelled' LIMIT :size) AS counted) AS cancelled,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: items}
        WHERE {part: is_item} AND o.state = 'skipped' LIMIT :size) AS counted) AS skipped
FROM (SELECT 1 AS one) AS asked
LEFT JOIN cronsensus_occurrences AS b ON b.id = :batch AND b.namespace = :space;

-- name: parked
-- types: never bigint, size bigint
-- Read a page of parked occurrences. Their due time is the latest instant: MySQL finds them by it, and the + keeps SQLite, once it has statistics, from reading all pending rows. Race: one is woken meanwhile; waking it again does nothing.
SELECT o.id, (SELECT j.name FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS job, o.parked_on, o.scheduled_for,
    o.created_at
FROM cronsensus_occurrences AS o {index: parked}
WHERE o.namespace = :space AND o.parked_on IS NOT NULL AND o.state = 'pending' AND +o.due_at = :never AND o.id > :after
ORDER BY o.id
LIMIT :size;

-- name: wake
-- Wake parked occurrences: make them due, not before their nominal time; a batch moves to the first class. Race: a claim, an end, or another wake; the condition checks whether they are parked.
UPDATE cronsensus_occurrences AS o {by_id}
SET due_at = CASE WHEN o.scheduled_for > o.created_at THEN o.scheduled_for ELSE o.created_at END,
    level = CASE WHEN o.listed IS NULL THEN o.level ELSE {part: batch_level} END, parked_on = NULL
WHERE o.id IN :ids AND o.namespace = :space AND 'pending' = coalesce(o.state, '') AND o.parked_on IS NOT NULL;

-- name: complete_list
-- types: listed bigint
-- Record that a list is complete, and wake its batch. Race: the batch is cancelled, claimed or completed by another; the condition checks for each.
UPDATE cronsensus_occurrences AS o {by_id}
SET listed = :listed, due_at = o.created_at, level = {part: batch_level}
WHERE o.id = :batch AND o.namespace = :space AND 'pending' = coalesce(o.state, '') AND o.listed IS NULL
    AND o.parked_on IS NULL;
