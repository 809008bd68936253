-- What version 1 made of an empty store, as it was. Never changed.

CREATE TABLE cronsensus_schema (
	version INTEGER NOT NULL,
	name VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	applied_at BIGINT NOT NULL,
	PRIMARY KEY (version)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE TABLE cronsensus_counters (
	name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	value BIGINT NOT NULL,
	PRIMARY KEY (name)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE TABLE cronsensus_releases (
	id BIGINT NOT NULL AUTO_INCREMENT,
	namespace VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	`release` VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	first_seen_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_releases_by_name UNIQUE (namespace, `release`)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE TABLE cronsensus_jobs (
	id BIGINT NOT NULL AUTO_INCREMENT,
	namespace VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	`function` VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	source VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	digest VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	spec TEXT(4000000) NOT NULL,
	revision INTEGER NOT NULL,
	overlap VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	concurrency INTEGER,
	keep BIGINT NOT NULL,
	watermark BIGINT NOT NULL,
	horizon BIGINT,
	next_due BIGINT,
	wake_at BIGINT,
	paused_at BIGINT,
	paused_by TEXT(4000000),
	paused_why TEXT(4000000),
	pause_ended_at BIGINT,
	retired_at BIGINT,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_jobs_by_name UNIQUE (namespace, name)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_jobs_waking ON cronsensus_jobs (namespace, wake_at, id);

CREATE INDEX cronsensus_jobs_declared ON cronsensus_jobs (namespace, source, retired_at, id);

CREATE INDEX cronsensus_jobs_paused ON cronsensus_jobs (namespace, paused_at);

CREATE TABLE cronsensus_eras (
	id BIGINT NOT NULL AUTO_INCREMENT,
	job_id BIGINT NOT NULL,
	since BIGINT NOT NULL,
	revision INTEGER NOT NULL,
	`trigger` TEXT(4000000),
	PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_eras_of_job ON cronsensus_eras (job_id, since);

CREATE TABLE cronsensus_pauses (
	id BIGINT NOT NULL AUTO_INCREMENT,
	job_id BIGINT NOT NULL,
	start BIGINT NOT NULL,
	end BIGINT,
	PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_pauses_of_job ON cronsensus_pauses (job_id, start);

CREATE TABLE cronsensus_occurrences (
	id BIGINT NOT NULL AUTO_INCREMENT,
	namespace VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	job_id BIGINT NOT NULL,
	`key` VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	origin VARCHAR(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	state VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	serial SMALLINT NOT NULL,
	priority INTEGER NOT NULL,
	scheduled_for BIGINT,
	due_at BIGINT NOT NULL,
	expires_at BIGINT,
	attempt INTEGER NOT NULL,
	crashes INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	token BIGINT NOT NULL,
	session VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
	node VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
	created_at BIGINT NOT NULL,
	started_at BIGINT,
	finished_at BIGINT,
	cancel_reason TEXT(4000000),
	retry_of BIGINT,
	progress_done DOUBLE,
	progress_total DOUBLE,
	reason TEXT(4000000),
	payload TEXT(4000000),
	result TEXT(4000000),
	error TEXT(4000000),
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_occurrences_known_origin CHECK (origin IN ('schedule', 'manual', 'enqueue', 'batch', 'dependency', 'backfill', 'startup')),
	CONSTRAINT cronsensus_occurrences_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed')),
	CONSTRAINT cronsensus_occurrences_by_key UNIQUE (job_id, `key`)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_occurrences_expiring ON cronsensus_occurrences (namespace, state, attempt, expires_at);

CREATE INDEX cronsensus_occurrences_nominal ON cronsensus_occurrences (job_id, scheduled_for);

CREATE INDEX cronsensus_occurrences_serial ON cronsensus_occurrences (job_id, serial, finished_at, state, id);

CREATE INDEX cronsensus_occurrences_failed ON cronsensus_occurrences (namespace, state, id);

CREATE INDEX cronsensus_occurrences_pending ON cronsensus_occurrences (namespace, state, priority, due_at, id, job_id, serial);

CREATE INDEX cronsensus_occurrences_running ON cronsensus_occurrences (namespace, state, session, job_id);

CREATE INDEX cronsensus_occurrences_final ON cronsensus_occurrences (job_id, finished_at);

CREATE INDEX cronsensus_occurrences_of_job ON cronsensus_occurrences (job_id, id);

CREATE TABLE cronsensus_runs (
	token BIGINT NOT NULL,
	occurrence_id BIGINT NOT NULL,
	attempt INTEGER NOT NULL,
	session VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	node VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
	started_at BIGINT NOT NULL,
	finished_at BIGINT NOT NULL,
	end VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	reason TEXT(4000000),
	error TEXT(4000000),
	PRIMARY KEY (token)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_runs_of_occurrence ON cronsensus_runs (occurrence_id);

CREATE TABLE cronsensus_logs (
	occurrence_id BIGINT NOT NULL,
	sequence INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	at BIGINT NOT NULL,
	level VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	text TEXT(4000000) NOT NULL,
	PRIMARY KEY (occurrence_id, sequence)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE TABLE cronsensus_verdicts (
	id BIGINT NOT NULL AUTO_INCREMENT,
	job_id BIGINT NOT NULL,
	first BIGINT NOT NULL,
	last BIGINT NOT NULL,
	state VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	reason TEXT(4000000) NOT NULL,
	count INTEGER,
	decided_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT cronsensus_verdicts_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed'))
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_verdicts_by_time ON cronsensus_verdicts (job_id, last);

CREATE INDEX cronsensus_verdicts_of_job ON cronsensus_verdicts (job_id, id);

CREATE TABLE cronsensus_sessions (
	number BIGINT NOT NULL AUTO_INCREMENT,
	id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	namespace VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	node VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	host VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	pid BIGINT NOT NULL,
	pid_started BIGINT NOT NULL,
	`release` VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	version VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	concurrency INTEGER NOT NULL,
	functions INTEGER NOT NULL,
	started_at BIGINT NOT NULL,
	renewed_at BIGINT NOT NULL,
	lease_until BIGINT NOT NULL,
	epoch VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	draining SMALLINT NOT NULL,
	ended_at BIGINT,
	ended_as VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
	ended_why TEXT(4000000),
	PRIMARY KEY (number),
	CONSTRAINT cronsensus_sessions_by_id UNIQUE (namespace, id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_sessions_ended ON cronsensus_sessions (namespace, ended_at);

CREATE TABLE cronsensus_locks (
	namespace VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	place INTEGER NOT NULL,
	holder VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	session VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
	token BIGINT NOT NULL,
	acquired_at BIGINT NOT NULL,
	lease_until BIGINT NOT NULL,
	epoch VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	PRIMARY KEY (namespace, name, place)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_locks_of_session ON cronsensus_locks (namespace, session);

CREATE TABLE cronsensus_trail (
	id BIGINT NOT NULL AUTO_INCREMENT,
	namespace VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	at BIGINT NOT NULL,
	`by` TEXT(4000000) NOT NULL,
	action VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	target VARCHAR(420) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
	why TEXT(4000000) NOT NULL,
	details TEXT(4000000) NOT NULL,
	PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;

CREATE INDEX cronsensus_trail_by_id ON cronsensus_trail (namespace, id);

CREATE INDEX cronsensus_trail_of_target ON cronsensus_trail (namespace, target, id);

INSERT INTO cronsensus_schema (version, name, applied_at) VALUES (1, 'm0001_first', 0);
INSERT INTO cronsensus_counters (name, value) VALUES ('token', 0);
