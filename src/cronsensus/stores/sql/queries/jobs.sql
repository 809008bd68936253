-- name: specs
-- Read definitions of jobs. Race: none, what is kept of them is known by the digest that is read with it.
SELECT j.id, j.revision, j.digest, j.defined_at, j.spec FROM cronsensus_jobs AS j WHERE j.id IN :ids;

-- name: lock_named_jobs
-- Lock jobs by name. Race: one is retired or defined anew; in the order of ids, one waits for the other.
SELECT j.id, j.name, j.revision, j.digest, j.defined_at, j.retired_at
FROM cronsensus_jobs AS j {by_name}
WHERE j.namespace = :space AND j.name IN :names
ORDER BY j.id
{for_update};
