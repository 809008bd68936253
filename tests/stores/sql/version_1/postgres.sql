-- What version 1 made of an empty store, as it was. Never changed.

CREATE TABLE cronsensus_schema (
	version INTEGER NOT NULL,
	name VARCHAR(100) COLLATE "C" NOT NULL,
	applied_at BIGINT NOT NULL,
	PRIMARY KEY (version)
);

CREATE TABLE cronsensus_counters (
	name VARCHAR(20) COLLATE "C" NOT NULL,
	value BIGINT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE cronsensus_releases (
	id BIGSERIAL NOT NULL,
	namespace VARCHAR(200) COLLATE "C" NOT NULL,
	release VARCHAR(200) COLLATE "C" NOT NULL,
	first_seen_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_releases_by_name UNIQUE (namespace, release)
);

CREATE TABLE cronsensus_jobs (
	id BIGSERIAL NOT NULL,
	namespace VARCHAR(200) COLLATE "C" NOT NULL,
	name VARCHAR(200) COLLATE "C" NOT NULL,
	function VARCHAR(200) COLLATE "C" NOT NULL,
	source VARCHAR(10) COLLATE "C" NOT NULL,
	digest VARCHAR(64) COLLATE "C" NOT NULL,
	spec TEXT NOT NULL,
	revision INTEGER NOT NULL,
	overlap VARCHAR(20) COLLATE "C" NOT NULL,
	concurrency INTEGER,
	keep BIGINT NOT NULL,
	watermark BIGINT NOT NULL,
	horizon BIGINT,
	next_due BIGINT,
	wake_at BIGINT,
	paused_at BIGINT,
	paused_by TEXT,
	paused_why TEXT,
	pause_ended_at BIGINT,
	retired_at BIGINT,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_jobs_by_name UNIQUE (name, namespace)
);

CREATE INDEX cronsensus_jobs_paused ON cronsensus_jobs (namespace) WHERE paused_at IS NOT NULL;

CREATE INDEX cronsensus_jobs_waking ON cronsensus_jobs (namespace, wake_at, id) WHERE wake_at IS NOT NULL;

CREATE INDEX cronsensus_jobs_declared ON cronsensus_jobs (namespace, id) WHERE source = 'code' AND retired_at IS NULL;

CREATE TABLE cronsensus_eras (
	id BIGSERIAL NOT NULL,
	job_id BIGINT NOT NULL,
	since BIGINT NOT NULL,
	revision INTEGER NOT NULL,
	trigger TEXT,
	PRIMARY KEY (id)
);

CREATE INDEX cronsensus_eras_of_job ON cronsensus_eras (job_id, since);

CREATE TABLE cronsensus_pauses (
	id BIGSERIAL NOT NULL,
	job_id BIGINT NOT NULL,
	start BIGINT NOT NULL,
	"end" BIGINT,
	PRIMARY KEY (id)
);

CREATE INDEX cronsensus_pauses_of_job ON cronsensus_pauses (job_id, start);

CREATE TABLE cronsensus_occurrences (
	id BIGSERIAL NOT NULL,
	namespace VARCHAR(200) COLLATE "C" NOT NULL,
	job_id BIGINT NOT NULL,
	key VARCHAR(400) COLLATE "C" NOT NULL,
	origin VARCHAR(12) COLLATE "C" NOT NULL,
	state VARCHAR(10) COLLATE "C" NOT NULL,
	serial SMALLINT NOT NULL,
	priority INTEGER NOT NULL,
	scheduled_for BIGINT,
	due_at BIGINT NOT NULL,
	expires_at BIGINT,
	attempt INTEGER NOT NULL,
	crashes INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	token BIGINT NOT NULL,
	session VARCHAR(100) COLLATE "C",
	node VARCHAR(200) COLLATE "C",
	created_at BIGINT NOT NULL,
	started_at BIGINT,
	finished_at BIGINT,
	cancel_reason TEXT,
	retry_of BIGINT,
	progress_done DOUBLE PRECISION,
	progress_total DOUBLE PRECISION,
	reason TEXT,
	payload TEXT,
	result TEXT,
	error TEXT,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_occurrences_known_origin CHECK (origin IN ('schedule', 'manual', 'enqueue', 'batch', 'dependency', 'backfill', 'startup')),
	CONSTRAINT cronsensus_occurrences_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed')),
	CONSTRAINT cronsensus_occurrences_by_key UNIQUE (key, job_id)
);

CREATE INDEX cronsensus_occurrences_pending ON cronsensus_occurrences (namespace, priority DESC, due_at, id, job_id, serial) WHERE state = 'pending' AND id > 0;

CREATE INDEX cronsensus_occurrences_serial ON cronsensus_occurrences (job_id, state, id) WHERE serial = 1 AND finished_at IS NULL;

CREATE INDEX cronsensus_occurrences_expiring ON cronsensus_occurrences (namespace, expires_at) WHERE state = 'pending' AND attempt = 0 AND expires_at IS NOT NULL;

CREATE INDEX cronsensus_occurrences_cancelling ON cronsensus_occurrences (namespace, session) WHERE state = 'running' AND cancel_reason IS NOT NULL;

CREATE INDEX cronsensus_occurrences_final ON cronsensus_occurrences (job_id, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX cronsensus_occurrences_failed ON cronsensus_occurrences (namespace, id) WHERE state = 'failed';

CREATE INDEX cronsensus_occurrences_running ON cronsensus_occurrences (namespace, session, job_id) WHERE state = 'running' AND id > 0;

CREATE INDEX cronsensus_occurrences_nominal ON cronsensus_occurrences (job_id, scheduled_for) WHERE scheduled_for IS NOT NULL;

CREATE INDEX cronsensus_occurrences_of_job ON cronsensus_occurrences (job_id, id) WHERE id > 0;

CREATE TABLE cronsensus_runs (
	token BIGINT NOT NULL,
	occurrence_id BIGINT NOT NULL,
	attempt INTEGER NOT NULL,
	session VARCHAR(100) COLLATE "C" NOT NULL,
	node VARCHAR(200) COLLATE "C",
	started_at BIGINT NOT NULL,
	finished_at BIGINT NOT NULL,
	"end" VARCHAR(10) COLLATE "C" NOT NULL,
	reason TEXT,
	error TEXT,
	PRIMARY KEY (token)
);

CREATE INDEX cronsensus_runs_of_occurrence ON cronsensus_runs (occurrence_id);

CREATE TABLE cronsensus_logs (
	occurrence_id BIGINT NOT NULL,
	sequence INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	at BIGINT NOT NULL,
	level VARCHAR(20) COLLATE "C" NOT NULL,
	text TEXT NOT NULL,
	PRIMARY KEY (occurrence_id, sequence)
);

CREATE TABLE cronsensus_verdicts (
	id BIGSERIAL NOT NULL,
	job_id BIGINT NOT NULL,
	first BIGINT NOT NULL,
	last BIGINT NOT NULL,
	state VARCHAR(10) COLLATE "C" NOT NULL,
	reason TEXT NOT NULL,
	count INTEGER,
	decided_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_verdicts_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed'))
);

CREATE INDEX cronsensus_verdicts_by_time ON cronsensus_verdicts (job_id, last);

CREATE INDEX cronsensus_verdicts_of_job ON cronsensus_verdicts (job_id, id);

CREATE TABLE cronsensus_sessions (
	number BIGSERIAL NOT NULL,
	id VARCHAR(100) COLLATE "C" NOT NULL,
	namespace VARCHAR(200) COLLATE "C" NOT NULL,
	node VARCHAR(200) COLLATE "C" NOT NULL,
	host VARCHAR(200) COLLATE "C" NOT NULL,
	pid BIGINT NOT NULL,
	pid_started BIGINT NOT NULL,
	release VARCHAR(200) COLLATE "C" NOT NULL,
	version VARCHAR(50) COLLATE "C" NOT NULL,
	concurrency INTEGER NOT NULL,
	functions INTEGER NOT NULL,
	started_at BIGINT NOT NULL,
	renewed_at BIGINT NOT NULL,
	lease_until BIGINT NOT NULL,
	epoch VARCHAR(64) COLLATE "C" NOT NULL,
	draining SMALLINT NOT NULL,
	ended_at BIGINT,
	ended_as VARCHAR(10) COLLATE "C",
	ended_why TEXT,
	PRIMARY KEY (number),
	CONSTRAINT cronsensus_sessions_by_id UNIQUE (namespace, id)
);

CREATE INDEX cronsensus_sessions_open ON cronsensus_sessions (namespace) WHERE ended_at IS NULL;

CREATE INDEX cronsensus_sessions_ended ON cronsensus_sessions (namespace, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE cronsensus_locks (
	namespace VARCHAR(200) COLLATE "C" NOT NULL,
	name VARCHAR(200) COLLATE "C" NOT NULL,
	place INTEGER NOT NULL,
	holder VARCHAR(400) COLLATE "C" NOT NULL,
	session VARCHAR(100) COLLATE "C",
	token BIGINT NOT NULL,
	acquired_at BIGINT NOT NULL,
	lease_until BIGINT NOT NULL,
	epoch VARCHAR(64) COLLATE "C" NOT NULL,
	PRIMARY KEY (namespace, name, place)
);

CREATE INDEX cronsensus_locks_of_session ON cronsensus_locks (namespace, session) WHERE session IS NOT NULL;

CREATE TABLE cronsensus_trail (
	id BIGSERIAL NOT NULL,
	namespace VARCHAR(200) COLLATE "C" NOT NULL,
	at BIGINT NOT NULL,
	by TEXT NOT NULL,
	action VARCHAR(40) COLLATE "C" NOT NULL,
	target VARCHAR(420) COLLATE "C" NOT NULL,
	why TEXT NOT NULL,
	details TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX cronsensus_trail_by_id ON cronsensus_trail (namespace, id);

CREATE INDEX cronsensus_trail_of_target ON cronsensus_trail (namespace, target, id);

INSERT INTO cronsensus_schema (version, name, applied_at) VALUES (1, 'm0001_first', 0);
INSERT INTO cronsensus_counters (name, value) VALUES ('token', 0);
CREATE SEQUENCE cronsensus_tokens AS BIGINT;
