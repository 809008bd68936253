BEGIN TRANSACTION;
CREATE TABLE cronsensus_counters (
	name VARCHAR(20) NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "cronsensus_counters" VALUES('token',1795435904211200);
INSERT INTO "cronsensus_counters" VALUES('identity',1806165810999829430);
CREATE TABLE cronsensus_eras (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	since INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	"trigger" TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "cronsensus_eras" VALUES(1,1,1795435903903000,1,NULL);
INSERT INTO "cronsensus_eras" VALUES(2,2,1795435903903000,1,'{"kind":"every","interval":"1h"}');
INSERT INTO "cronsensus_eras" VALUES(3,3,1795435903903000,1,NULL);
INSERT INTO "cronsensus_eras" VALUES(4,4,1795435903903000,1,NULL);
INSERT INTO "cronsensus_eras" VALUES(5,5,1795435904094736,1,NULL);
CREATE TABLE cronsensus_jobs (
	id INTEGER NOT NULL, 
	namespace VARCHAR(200) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	function VARCHAR(200) NOT NULL, 
	source VARCHAR(10) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	defined_at INTEGER, 
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
	waiting_until INTEGER, 
	PRIMARY KEY (id), 
	CONSTRAINT cronsensus_jobs_by_name UNIQUE (namespace, name)
);
INSERT INTO "cronsensus_jobs" VALUES(1,'default','failing','failing','code','c41e9685c15dcf3888a3fd8e553c4043',1795435903903000,'{"name":"failing","function":"failing","trigger":null,"args":[],"kwargs":{},"policies":{"overlap":"skip","catch_up":"latest","catch_up_window":86400000000,"grace":null,"on_crash":"retry","max_crashes":3,"retries":3,"retry_delay":3600000000,"retry_factor":2.0,"retry_max_delay":3600000000,"timeout":null,"concurrency":null,"priority":0,"keep":2592000000000},"executor":"thread","source":"code"}',1,'skip',NULL,2592000000000,1795435903903000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795435903903000,NULL);
INSERT INTO "cronsensus_jobs" VALUES(2,'default','hourly','hourly','code','ca23d63a84dc5b4ef1a7247bd80510cb',1795435903903000,'{"name":"hourly","function":"hourly","trigger":{"kind":"every","interval":"1h"},"args":[],"kwargs":{},"policies":{"overlap":"skip","catch_up":"latest","catch_up_window":86400000000,"grace":null,"on_crash":"retry","max_crashes":3,"retries":0,"retry_delay":1000000,"retry_factor":2.0,"retry_max_delay":3600000000,"timeout":null,"concurrency":null,"priority":0,"keep":2592000000000},"executor":"thread","source":"code"}',1,'skip',NULL,2592000000000,1795435903903000,NULL,1795438800000000,NULL,1795435904145041,'recorded','to see it later',NULL,NULL,1795435903903000,NULL);
INSERT INTO "cronsensus_jobs" VALUES(3,'default','long','long','code','16f4a4085389387e6bbec346dfb4b0f2',1795435903903000,'{"name":"long","function":"long","trigger":null,"args":[],"kwargs":{},"policies":{"overlap":"skip","catch_up":"latest","catch_up_window":86400000000,"grace":null,"on_crash":"retry","max_crashes":3,"retries":0,"retry_delay":1000000,"retry_factor":2.0,"retry_max_delay":3600000000,"timeout":null,"concurrency":null,"priority":0,"keep":2592000000000},"executor":"thread","source":"code"}',1,'skip',NULL,2592000000000,1795435903903000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795435903903000,NULL);
INSERT INTO "cronsensus_jobs" VALUES(4,'default','order','order','code','ef6dff32067586ca6a31f961a18009f8',1795435903903000,'{"name":"order","function":"order","trigger":null,"args":[],"kwargs":{},"policies":{"overlap":"skip","catch_up":"latest","catch_up_window":86400000000,"grace":null,"on_crash":"retry","max_crashes":3,"retries":0,"retry_delay":1000000,"retry_factor":2.0,"retry_max_delay":3600000000,"timeout":null,"concurrency":null,"priority":0,"keep":2592000000000},"executor":"thread","source":"code"}',1,'skip',NULL,2592000000000,1795435903903000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795435903903000,NULL);
INSERT INTO "cronsensus_jobs" VALUES(5,'default','once:charge','once:charge','runtime','33e5901afdfaaa763733752aafd665a9',1795435904094736,'{"name":"once:charge","function":"once:charge","trigger":null,"args":[],"kwargs":{},"policies":{"overlap":"allow","catch_up":"latest","catch_up_window":86400000000,"grace":null,"on_crash":"retry","max_crashes":10,"retries":0,"retry_delay":1000000,"retry_factor":2.0,"retry_max_delay":3600000000,"timeout":null,"concurrency":null,"priority":0,"keep":3153600000000000},"executor":"thread","source":"runtime"}',1,'allow',NULL,3153600000000000,1795435904094736,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795435904094736,NULL);
CREATE TABLE cronsensus_locks (
	namespace VARCHAR(200) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	place INTEGER NOT NULL, 
	holder VARCHAR(400) NOT NULL, 
	session VARCHAR(100), 
	token INTEGER NOT NULL, 
	acquired_at INTEGER NOT NULL, 
	lease_until INTEGER NOT NULL, 
	most INTEGER, 
	epoch VARCHAR(64) NOT NULL, 
	PRIMARY KEY (namespace, name, place)
);
INSERT INTO "cronsensus_locks" VALUES('default','held',0,'recorded/MainThread/1','01a20851-bca3-77e7-a8ae-5c9335843773',1795435904180020,1795435904180020,83593566846,1,'75f7d60d-e0d4-428f-b29a-190d769b2bcc');
CREATE TABLE cronsensus_logs (
	occurrence_id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	at INTEGER NOT NULL, 
	level VARCHAR(20) NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (occurrence_id, sequence)
)
 WITHOUT ROWID

;
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
	fingerprint TEXT, 
	CONSTRAINT cronsensus_occurrences_known_origin CHECK (origin IN ('schedule', 'manual', 'enqueue', 'batch', 'dependency', 'backfill', 'startup')), 
	CONSTRAINT cronsensus_occurrences_known_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed')), 
	CONSTRAINT cronsensus_occurrences_by_key UNIQUE (job_id, "key")
);
INSERT INTO "cronsensus_occurrences" VALUES(1,'default',4,'01a20851-bbd5-74ef-8e9b-9d9684f861c3','enqueue','succeeded',0,0,NULL,1795435903954369,NULL,1,0,0,1795435903974022,'01a20851-bb83-71f2-ba39-615cc4a262cc','recorded',1795435903954369,1795435903974022,1795435904016758,NULL,NULL,NULL,NULL,NULL,'[[1],{}]','{"number":1}',NULL,NULL);
INSERT INTO "cronsensus_occurrences" VALUES(2,'default',1,'01a20851-bc39-7e53-9719-ce9ea347a008','enqueue','pending',0,0,NULL,1795439051554105,NULL,1,0,1,1795435904066418,NULL,NULL,1795435904056973,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[[2],{}]',NULL,'{"type":"ValueError","message":"as it was: 2","traceback":"Traceback (most recent call last):\n  File \"/srv/record.py\", line 30, in failing\n    raise ValueError(f\"as it was: {number}\")\nValueError: as it was: 2"}',NULL);
INSERT INTO "cronsensus_occurrences" VALUES(3,'default',5,'charge:3','enqueue','succeeded',0,0,NULL,1795435904117829,NULL,1,0,0,1795435904117829,'01a20851-bc69-7ab5-83a9-6b1f5ec1a272','recorded',1795435904117829,1795435904117829,1795435904130177,NULL,NULL,NULL,NULL,NULL,'','"charged 3"',NULL,'{"k":"i","p":{"number":"c4f1279e1ae5"}}');
INSERT INTO "cronsensus_occurrences" VALUES(4,'default',3,'01a20851-bcc4-7291-827c-acc26423a317','enqueue','running',0,0,NULL,1795435904196511,NULL,1,0,0,1795435904211200,'01a20851-bb83-71f2-ba39-615cc4a262cc','recorded',1795435904196511,1795435904211200,NULL,NULL,NULL,1.0,2.0,NULL,'[[4],{}]',NULL,NULL,NULL);
CREATE TABLE cronsensus_pauses (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	start INTEGER NOT NULL, 
	"end" INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "cronsensus_pauses" VALUES(1,2,1795435904145041,NULL);
CREATE TABLE cronsensus_releases (
	id INTEGER NOT NULL, 
	namespace VARCHAR(200) NOT NULL, 
	release VARCHAR(200) NOT NULL, 
	first_seen_at INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT cronsensus_releases_by_name UNIQUE (namespace, release)
);
INSERT INTO "cronsensus_releases" VALUES(1,'default','r1+28e90d1ff6e4',1795435903888199);
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
INSERT INTO "cronsensus_runs" VALUES(1795435903974022,1,1,'01a20851-bb83-71f2-ba39-615cc4a262cc','recorded',1795435903974022,1795435904016758,'succeeded',NULL,NULL);
INSERT INTO "cronsensus_runs" VALUES(1795435904066418,2,1,'01a20851-bb83-71f2-ba39-615cc4a262cc','recorded',1795435904066418,1795435904070174,'retry',NULL,'{"type":"ValueError","message":"as it was: 2","traceback":"Traceback (most recent call last):\n  File \"/srv/record.py\", line 30, in failing\n    raise ValueError(f\"as it was: {number}\")\nValueError: as it was: 2"}');
INSERT INTO "cronsensus_runs" VALUES(1795435904117829,3,1,'01a20851-bc69-7ab5-83a9-6b1f5ec1a272','recorded',1795435904117829,1795435904130177,'succeeded',NULL,NULL);
CREATE TABLE cronsensus_schema (
	version INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	applied_at INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "cronsensus_schema" VALUES(1,'m0001_first',1795435903673068);
INSERT INTO "cronsensus_schema" VALUES(2,'m0002_additions',1795435903718770);
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
	beats INTEGER, 
	lease_until INTEGER NOT NULL, 
	epoch VARCHAR(64) NOT NULL, 
	draining SMALLINT NOT NULL, 
	ended_at INTEGER, 
	ended_as VARCHAR(10), 
	ended_why TEXT, 
	PRIMARY KEY (number), 
	CONSTRAINT cronsensus_sessions_by_id UNIQUE (namespace, id)
);
INSERT INTO "cronsensus_sessions" VALUES(1,'01a20851-bb83-71f2-ba39-615cc4a262cc','default','recorded','75f7d60d-e0d4-428f-b29a-190d769b2bcc/pid:[4026531836]',13495,8356144,'r1+28e90d1ff6e4','0.1.0',20,4,1795435903888199,1795435904430388,2,83573817214,'75f7d60d-e0d4-428f-b29a-190d769b2bcc',0,NULL,NULL,NULL);
INSERT INTO "cronsensus_sessions" VALUES(2,'01a20851-bc69-7ab5-83a9-6b1f5ec1a272','default','recorded','75f7d60d-e0d4-428f-b29a-190d769b2bcc/pid:[4026531836]',13495,8356144,'','0.1.0',0,0,1795435904106692,1795435904117829,0,83573504654,'75f7d60d-e0d4-428f-b29a-190d769b2bcc',0,NULL,NULL,NULL);
INSERT INTO "cronsensus_sessions" VALUES(3,'01a20851-bca3-77e7-a8ae-5c9335843773','default','recorded','75f7d60d-e0d4-428f-b29a-190d769b2bcc/pid:[4026531836]',13495,8356144,'','0.1.0',0,0,1795435904164837,1795435904164837,0,84163551658,'75f7d60d-e0d4-428f-b29a-190d769b2bcc',0,NULL,NULL,NULL);
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
INSERT INTO "cronsensus_trail" VALUES(1,'default',1795435903903000,'recorded','define','failing','','{"did":"created","release":"r1+28e90d1ff6e4"}');
INSERT INTO "cronsensus_trail" VALUES(2,'default',1795435903903000,'recorded','define','hourly','','{"did":"created","release":"r1+28e90d1ff6e4"}');
INSERT INTO "cronsensus_trail" VALUES(3,'default',1795435903903000,'recorded','define','long','','{"did":"created","release":"r1+28e90d1ff6e4"}');
INSERT INTO "cronsensus_trail" VALUES(4,'default',1795435903903000,'recorded','define','order','','{"did":"created","release":"r1+28e90d1ff6e4"}');
INSERT INTO "cronsensus_trail" VALUES(5,'default',1795435904094736,'recorded','define','once:charge','','{"did":"created","release":"r1+28e90d1ff6e4"}');
INSERT INTO "cronsensus_trail" VALUES(6,'default',1795435904145041,'recorded','pause','hourly','to see it later','{}');
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
CREATE INDEX cronsensus_jobs_waiting ON cronsensus_jobs (namespace, waiting_until) WHERE waiting_until IS NOT NULL;
CREATE INDEX cronsensus_jobs_declared ON cronsensus_jobs (namespace, id) WHERE source = 'code' AND retired_at IS NULL;
CREATE INDEX cronsensus_jobs_paused ON cronsensus_jobs (namespace) WHERE paused_at IS NOT NULL;
CREATE INDEX cronsensus_jobs_waking ON cronsensus_jobs (namespace, wake_at, id);
CREATE INDEX cronsensus_jobs_retired ON cronsensus_jobs (namespace, retired_at) WHERE retired_at IS NOT NULL;
CREATE INDEX cronsensus_jobs_redefined ON cronsensus_jobs (namespace, id) WHERE revision > 1;
CREATE INDEX cronsensus_eras_of_job ON cronsensus_eras (job_id, since);
CREATE INDEX cronsensus_pauses_of_job ON cronsensus_pauses (job_id, start);
CREATE INDEX cronsensus_occurrences_expiring ON cronsensus_occurrences (namespace, expires_at) WHERE state = 'pending' AND attempt = 0 AND expires_at IS NOT NULL;
CREATE INDEX cronsensus_occurrences_running ON cronsensus_occurrences (namespace, session, job_id) WHERE state = 'running';
CREATE INDEX cronsensus_occurrences_pending ON cronsensus_occurrences (namespace, priority DESC, due_at, id, job_id, serial) WHERE state = 'pending';
CREATE INDEX cronsensus_occurrences_failed ON cronsensus_occurrences (namespace, id) WHERE state = 'failed';
CREATE INDEX cronsensus_occurrences_final ON cronsensus_occurrences (job_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX cronsensus_occurrences_serial ON cronsensus_occurrences (job_id, state, id) WHERE serial = 1 AND finished_at IS NULL;
CREATE INDEX cronsensus_occurrences_nominal ON cronsensus_occurrences (job_id, scheduled_for) WHERE scheduled_for IS NOT NULL;
CREATE INDEX cronsensus_occurrences_of_job ON cronsensus_occurrences (job_id, id);
CREATE INDEX cronsensus_runs_of_occurrence ON cronsensus_runs (occurrence_id);
CREATE INDEX cronsensus_verdicts_by_time ON cronsensus_verdicts (job_id, last);
CREATE INDEX cronsensus_verdicts_of_job ON cronsensus_verdicts (job_id, id);
CREATE INDEX cronsensus_sessions_ended ON cronsensus_sessions (namespace, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX cronsensus_sessions_turning ON cronsensus_sessions (namespace, concurrency) WHERE ended_at IS NULL AND concurrency > 0;
CREATE INDEX cronsensus_sessions_open ON cronsensus_sessions (namespace) WHERE ended_at IS NULL;
CREATE INDEX cronsensus_locks_of_session ON cronsensus_locks (namespace, session) WHERE session IS NOT NULL;
CREATE INDEX cronsensus_trail_of_target ON cronsensus_trail (namespace, target, id);
CREATE INDEX cronsensus_trail_by_id ON cronsensus_trail (namespace, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('cronsensus_occurrences',4);
COMMIT;
