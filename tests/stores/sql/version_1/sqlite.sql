-- What version 1 made of an empty store, as it was. Never changed.

CREATE TABLE cronsensus_schema (
	version INTEGER NOT NULL,
	name VARCHAR(100) NOT NULL,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (version)
);

CREATE TABLE cronsensus_counters (
	name VARCHAR(20) NOT NULL,
	value INTEGER NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE cronsensus_releases (
	id INTEGER NOT NULL,
	namespace VARCHAR(200) NOT NULL,
	release VARCHAR(200) NOT NULL,
	first_seen_at INTEGER NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_releases_by_name UNIQUE (namespace, release)
);

CREATE TABLE cronsensus_jobs (
	id INTEGER NOT NULL,
	namespace VARCHAR(200) NOT NULL,
	name VARCHAR(200) NOT NULL,
	function VARCHAR(200) NOT NULL,
	source VARCHAR(10) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	spec TEXT NOT NULL,
	revision INTEGER NOT NULL,
	overlap VARCHAR(20) NOT NULL,
	concurrency INTEGER,
	keep INTEGER NOT NULL,
	watermark INTEGER NOT NULL,
	horizon INTEGER,
	next_due INTEGER,
	wake_at INTEGER,
	paused_at INTEGER,
	paused_by TEXT,
	paused_why TEXT,
	pause_ended_at INTEGER,
	retired_at INTEGER,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_jobs_by_name UNIQUE (namespace, name)
);

CREATE INDEX cronsensus_jobs_paused ON cronsensus_jobs (namespace) WHERE paused_at IS NOT NULL;

CREATE INDEX cronsensus_jobs_waking ON cronsensus_jobs (namespace, wake_at, id);

CREATE INDEX cronsensus_jobs_declared ON cronsensus_jobs (namespace, id) WHERE source = 'code' AND retired_at IS NULL;

CREATE TABLE cronsensus_eras (
	id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	since INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	"trigger" TEXT,
	PRIMARY KEY (id)
);

CREATE INDEX cronsensus_eras_of_job ON cronsensus_eras (job_id, since);

CREATE TABLE cronsensus_pauses (
	id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	start INTEGER NOT NULL,
	"end" INTEGER,
	PRIMARY KEY (id)
);

CREATE INDEX cronsensus_pauses_of_job ON cronsensus_pauses (job_id, start);

CREATE TABLE cronsensus_occurrences (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	namespace VARCHAR(200) NOT NULL,
	job_id INTEGER NOT NULL,
	"key" VARCHAR(400) NOT NULL,
	origin VARCHAR(12) NOT NULL,
	state VARCHAR(10) NOT NULL,
	serial SMALLINT NOT NULL,
	priority INTEGER NOT NULL,
	scheduled_for INTEGER,
	due_at INTEGER NOT NULL,
	expires_at INTEGER,
	attempt INTEGER NOT NULL,
	crashes INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	token INTEGER NOT NULL,
	session VARCHAR(100),
	node VARCHAR(200),
	created_at INTEGER NOT NULL,
	started_at INTEGER,
	finished_at INTEGER,
	cancel_reason TEXT,
	retry_of INTEGER,
	progress_done DOUBLE,
	progress_total DOUBLE,
	reason TEXT,
	payload TEXT,
	result TEXT,
	error TEXT,
	CONSTRAINT cronsensus_occurrences_known_origin CHECK (origin IN ('schedule', 'manual', 'enqueue', 'batch', 'dependency', 'backfill', 'startup')),
	CONSTRAINT cronsensus_occurrences_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed')),
	CONSTRAINT cronsensus_occurrences_by_key UNIQUE (job_id, "key")
);

CREATE INDEX cronsensus_occurrences_pending ON cronsensus_occurrences (namespace, priority DESC, due_at, id, job_id, serial) WHERE state = 'pending';

CREATE INDEX cronsensus_occurrences_serial ON cronsensus_occurrences (job_id, state, id) WHERE serial = 1 AND finished_at IS NULL;

CREATE INDEX cronsensus_occurrences_expiring ON cronsensus_occurrences (namespace, expires_at) WHERE state = 'pending' AND attempt = 0 AND expires_at IS NOT NULL;

CREATE INDEX cronsensus_occurrences_cancelling ON cronsensus_occurrences (namespace, session) WHERE state = 'running' AND cancel_reason IS NOT NULL;

CREATE INDEX cronsensus_occurrences_final ON cronsensus_occurrences (job_id, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX cronsensus_occurrences_failed ON cronsensus_occurrences (namespace, id) WHERE state = 'failed';

CREATE INDEX cronsensus_occurrences_running ON cronsensus_occurrences (namespace, session, job_id) WHERE state = 'running';

CREATE INDEX cronsensus_occurrences_nominal ON cronsensus_occurrences (job_id, scheduled_for) WHERE scheduled_for IS NOT NULL;

CREATE INDEX cronsensus_occurrences_of_job ON cronsensus_occurrences (job_id, id);

CREATE TABLE cronsensus_runs (
	token INTEGER NOT NULL,
	occurrence_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	session VARCHAR(100) NOT NULL,
	node VARCHAR(200),
	started_at INTEGER NOT NULL,
	finished_at INTEGER NOT NULL,
	"end" VARCHAR(10) NOT NULL,
	reason TEXT,
	error TEXT,
	PRIMARY KEY (token)
);

CREATE INDEX cronsensus_runs_of_occurrence ON cronsensus_runs (occurrence_id);

CREATE TABLE cronsensus_logs (
	occurrence_id INTEGER NOT NULL,
	sequence INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	at INTEGER NOT NULL,
	level VARCHAR(20) NOT NULL,
	text TEXT NOT NULL,
	PRIMARY KEY (occurrence_id, sequence)
)
 WITHOUT ROWID;

CREATE TABLE cronsensus_verdicts (
	id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	first INTEGER NOT NULL,
	last INTEGER NOT NULL,
	state VARCHAR(10) NOT NULL,
	reason TEXT NOT NULL,
	count INTEGER,
	decided_at INTEGER NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_verdicts_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed'))
);

CREATE INDEX cronsensus_verdicts_by_time ON cronsensus_verdicts (job_id, last);

CREATE INDEX cronsensus_verdicts_of_job ON cronsensus_verdicts (job_id, id);

CREATE TABLE cronsensus_sessions (
	number INTEGER NOT NULL,
	id VARCHAR(100) NOT NULL,
	namespace VARCHAR(200) NOT NULL,
	node VARCHAR(200) NOT NULL,
	host VARCHAR(200) NOT NULL,
	pid INTEGER NOT NULL,
	pid_started INTEGER NOT NULL,
	release VARCHAR(200) NOT NULL,
	version VARCHAR(50) NOT NULL,
	concurrency INTEGER NOT NULL,
	functions INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	renewed_at INTEGER NOT NULL,
	lease_until INTEGER NOT NULL,
	epoch VARCHAR(64) NOT NULL,
	draining SMALLINT NOT NULL,
	ended_at INTEGER,
	ended_as VARCHAR(10),
	ended_why TEXT,
	PRIMARY KEY (number),
	CONSTRAINT cronsensus_sessions_by_id UNIQUE (namespace, id)
);

CREATE INDEX cronsensus_sessions_open ON cronsensus_sessions (namespace) WHERE ended_at IS NULL;

CREATE INDEX cronsensus_sessions_ended ON cronsensus_sessions (namespace, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE cronsensus_locks (
	namespace VARCHAR(200) NOT NULL,
	name VARCHAR(200) NOT NULL,
	place INTEGER NOT NULL,
	holder VARCHAR(400) NOT NULL,
	session VARCHAR(100),
	token INTEGER NOT NULL,
	acquired_at INTEGER NOT NULL,
	lease_until INTEGER NOT NULL,
	epoch VARCHAR(64) NOT NULL,
	PRIMARY KEY (namespace, name, place)
);

CREATE INDEX cronsensus_locks_of_session ON cronsensus_locks (namespace, session) WHERE session IS NOT NULL;

CREATE TABLE cronsensus_trail (
	id INTEGER NOT NULL,
	namespace VARCHAR(200) NOT NULL,
	at INTEGER NOT NULL,
	"by" TEXT NOT NULL,
	action VARCHAR(40) NOT NULL,
	target VARCHAR(420) NOT NULL,
	why TEXT NOT NULL,
	details TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX cronsensus_trail_by_id ON cronsensus_trail (namespace, id);

CREATE INDEX cronsensus_trail_of_target ON cronsensus_trail (namespace, target, id);

INSERT INTO cronsensus_schema (version, name, applied_at) VALUES (1, 'm0001_first', 0);
INSERT INTO cronsensus_counters (name, value) VALUES ('token', 0);
