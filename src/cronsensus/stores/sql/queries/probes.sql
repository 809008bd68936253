-- name: living_nodes
-- Read which sessions are alive and how many runs each holds, if the schema has this code's version. Race: none.
SELECT s.node, s.id, s.draining, s.concurrency,
    (SELECT count(*) FROM cronsensus_occurrences AS o {index: running}
        WHERE o.namespace = s.namespace AND o.session = s.id AND o.state = 'running' {listed}) AS held_runs,
    s.host, s.pid, s.pid_started
FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
    AND (SELECT max(known.version) FROM cronsensus_schema AS known) = :version
ORDER BY s.number DESC
LIMIT 200;

-- name: needs_a_node
-- Read whether there is a job that only a node can run: any but those that guard calls (``JobSpec.guarded``). Race: none.
SELECT 1
FROM cronsensus_jobs AS j
WHERE j.namespace = :space AND j.retired_at IS NULL AND NOT (j.source = 'runtime' AND j."function" = j.name AND (
    substr(j.name, 1, 5) = 'once:' OR substr(j.name, 1, 9) = 'once_per:' OR substr(j.name, 1, 8) = 'startup:'))
LIMIT 1;
