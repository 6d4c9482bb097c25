PRAGMA application_id = 1903649140;
BEGIN TRANSACTION;
CREATE TABLE decisions (
	id VARCHAR NOT NULL, 
	at VARCHAR NOT NULL, 
	action VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	lane VARCHAR, 
	task_set VARCHAR, 
	run VARCHAR, 
	mode VARCHAR NOT NULL, 
	ruling VARCHAR NOT NULL, 
	objections VARCHAR NOT NULL, 
	findings VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "decisions" VALUES('d-1','2026-01-01T00:10:00.000000+00:00','isolate','int8-a','llama','math: mean KL 0.09 is degraded, twice in a row','limits','math','r-20260101-000009-000009','enforce','act','[]','[{"metric":"kl_mean","part":null,"value":0.09,"interval":[0.081,0.099,0.95],"warn":0.01,"critical":0.05,"verdict":"degraded","reason":"mean KL 0.09 is degraded"}]');
CREATE TABLE intents (
	decision VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	action VARCHAR NOT NULL, 
	opened VARCHAR NOT NULL, 
	attempts INTEGER NOT NULL, 
	sent VARCHAR NOT NULL, 
	result VARCHAR, 
	detail VARCHAR, 
	settled VARCHAR, 
	settled_attempts INTEGER, 
	doubt BOOLEAN, 
	PRIMARY KEY (decision), 
	FOREIGN KEY(decision) REFERENCES decisions (id) ON DELETE CASCADE
);
INSERT INTO "intents" VALUES('d-1','int8-a','llama','isolate','2026-01-01T00:10:00.000000+00:00',0,'{"decision":"d-1","action":"isolate","target":"int8-a","pool":"llama","node":"http://int8-a:8000","driver":"webhook","reason":"math: mean KL 0.09 is degraded, twice in a row","verdict":"degraded","fallback":"http://fp16:8000","task_set":"math","run":"r-20260101-000009-000009","evidence":[{"metric":"kl_mean","part":null,"value":0.09,"interval":[0.081,0.099,0.95],"warn":0.01,"critical":0.05,"verdict":"degraded","reason":"mean KL 0.09 is degraded"}]}',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE meta (
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema','1');
INSERT INTO "meta" VALUES('created','2026-01-01T00:00:00.000000+00:00');
INSERT INTO "meta" VALUES('ping','');
CREATE TABLE numbers (
	run VARCHAR NOT NULL, 
	metric VARCHAR NOT NULL, 
	value FLOAT, 
	low FLOAT, 
	high FLOAT, 
	warn FLOAT, 
	critical FLOAT, 
	quality VARCHAR, 
	PRIMARY KEY (run, metric), 
	FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','kl_mean',0.004,3.60000000000000033514e-03,0.0044,0.01,0.05,'ok');
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','kl_p99',0.04,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','perplexity_ratio',1.0143,1.01,1.02,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','top1_agreement',0.975,0.97,0.98,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','kl_median',0.002,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','kl_max',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','perplexity_baseline',3.5,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','perplexity_node',3.55,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','tail_mass',0.02,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','tail_mass_node',0.021,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "numbers" VALUES('r-20260101-000001-000001','coverage',0.98,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE pauses (
	id VARCHAR NOT NULL, 
	scope VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	author VARCHAR NOT NULL, 
	since VARCHAR NOT NULL, 
	until VARCHAR, 
	ended VARCHAR, 
	PRIMARY KEY (id)
);
CREATE TABLE reference_answers (
	number INTEGER NOT NULL, 
	fingerprint VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	prompt_id VARCHAR NOT NULL, 
	mode VARCHAR NOT NULL, 
	k INTEGER NOT NULL, 
	prompt_length INTEGER NOT NULL, 
	made VARCHAR NOT NULL, 
	seconds FLOAT, 
	sequence BLOB NOT NULL, 
	positions BLOB NOT NULL, 
	ids BLOB NOT NULL, 
	logprobs BLOB NOT NULL, 
	actual BLOB NOT NULL, 
	floor BLOB NOT NULL, 
	marks VARCHAR NOT NULL, 
	superseded VARCHAR, 
	PRIMARY KEY (number)
);
CREATE TABLE runs (
	id VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	task_set VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	"trigger" VARCHAR NOT NULL, 
	started VARCHAR NOT NULL, 
	seconds FLOAT, 
	quality VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	basis VARCHAR NOT NULL, 
	limits VARCHAR NOT NULL, 
	measured BOOLEAN NOT NULL, 
	document VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES('r-20260101-000001-000001','int8-a','math','llama','schedule','2026-01-01T00:01:00.000000+00:00',30.0,'ok','mean KL 0.004 is ok','b1','l1',1,'{"schema":1,"id":"r-20260101-000001-000001","target":"int8-a","task_set":"math","pool":"llama","trigger":"schedule","started":"2026-01-01T00:01:00.000+00:00","seconds":30.0,"quality":"ok","reason":"mean KL 0.004 is ok","basis":"b1","limits":"l1","baseline":{"name":"baseline","url":"http://fp16:8000","model":"llama","root":"meta/llama","max_model_len":4096,"version":"0.32.0","started":1760000000.0,"tokenizer":"tttttttt"},"node":{"name":"int8-a","url":"http://int8-a:8000","model":"llama-w8a8","root":"acme/llama-w8a8","max_model_len":4096,"version":"0.32.0","started":1760000500.0,"tokenizer":"tttttttt"},"load_before":null,"load_after":null,"report":{"name":"math","pool":"dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","prompts":23,"drawn":24,"seed":7,"k":20,"mode":"prompt_scoring","distinct_prompts":20,"positions":2304,"estimator":"bucket","evidence":"draw","kl_mean":0.004,"kl_interval":[0.0036000000000000003,0.0044],"kl_median":0.002,"kl_p99":0.04,"kl_p99_interval":null,"kl_max":null,"perplexity_baseline":3.5,"perplexity_node":3.55,"perplexity_ratio":1.0143,"perplexity_ratio_interval":[1.01,1.02],"logprob_delta":null,"logprob_delta_interval":null,"top1_agreement":0.975,"top1_interval":[0.97,0.98],"topk_overlap":null,"variation_low":null,"variation_high":null,"entropy_baseline":null,"entropy_node":null,"tail_mass":0.02,"tail_mass_node":0.021,"coverage":0.98,"uninformative_positions":3,"interval_level":0.95,"slices":[],"corrupted_positions":0,"canary":{"answers":0,"structured":0,"signs":[]},"verdict":"ok","reasons":["mean KL 0.004 is ok"],"findings":[{"metric":"kl_mean","part":null,"value":0.004,"warn":0.01,"critical":0.05,"verdict":"ok","reason":"mean KL 0.004 is ok","prompts_needed":null}],"missing":[{"prompt":"math-07","draws":1,"quality":"unknown","reason":"no answer in 120 s"}],"probe_seconds_baseline":null,"probe_seconds_node":0.4}}');
CREATE TABLE set_states (
	target VARCHAR NOT NULL, 
	task_set VARCHAR NOT NULL, 
	quality VARCHAR NOT NULL, 
	last VARCHAR NOT NULL, 
	breaches INTEGER NOT NULL, 
	clean INTEGER NOT NULL, 
	undecided INTEGER NOT NULL, 
	basis VARCHAR NOT NULL, 
	run VARCHAR, 
	at VARCHAR, 
	reason VARCHAR NOT NULL, 
	proof VARCHAR, 
	process VARCHAR, 
	limits VARCHAR NOT NULL, 
	PRIMARY KEY (target, task_set)
);
INSERT INTO "set_states" VALUES('int8-a','math','ok','ok',0,0,0,'b1','r-20260101-000001-000001','2026-01-01T00:01:30.000000+00:00','mean KL 0.004 is ok',NULL,'1760000500.00 0.32.0','l1');
CREATE TABLE target_states (
	target VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	routing VARCHAR NOT NULL, 
	human VARCHAR NOT NULL, 
	owner VARCHAR, 
	since VARCHAR, 
	ejections INTEGER NOT NULL, 
	gone VARCHAR, 
	lane VARCHAR, 
	node VARCHAR, 
	driver VARCHAR, 
	PRIMARY KEY (target)
);
INSERT INTO "target_states" VALUES('int8-a','llama','leaving','none','d-1','2026-01-01T00:10:00.000000+00:00',1,NULL,'limits','http://int8-a:8000','webhook');
CREATE TABLE transitions (
	number INTEGER NOT NULL, 
	at VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	axis VARCHAR NOT NULL, 
	old VARCHAR NOT NULL, 
	new VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	task_set VARCHAR, 
	run VARCHAR, 
	decision VARCHAR, 
	author VARCHAR NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "transitions" VALUES(1,'2026-01-01T00:10:00.000000+00:00','int8-a','routing','unknown','ok','mean KL over its limit',NULL,'r-20260101-000001-000001',NULL,'quantwatch');
INSERT INTO "transitions" VALUES(2,'2026-01-01T00:10:00.000000+00:00','int8-a','routing','in','leaving','mean KL over its limit',NULL,NULL,'d-1','quantwatch');
CREATE INDEX runs_by_pair ON runs (target, task_set, started);
CREATE INDEX runs_by_time ON runs (started);
CREATE INDEX decisions_by_time ON decisions (at);
CREATE INDEX decisions_by_target ON decisions (target, at);
CREATE INDEX transitions_by_run ON transitions (run);
CREATE INDEX transitions_by_decision ON transitions (decision);
CREATE INDEX transitions_by_target ON transitions (target, at);
CREATE UNIQUE INDEX reference_answers_in_use ON reference_answers (fingerprint, pool, prompt_id, mode, k) WHERE superseded IS NULL;
CREATE INDEX intents_by_pool ON intents (pool, opened);
CREATE TRIGGER transitions_stay BEFORE UPDATE ON transitions BEGIN SELECT RAISE(ABORT, 'transitions are never changed'); END;
CREATE TRIGGER decisions_stay BEFORE UPDATE ON decisions BEGIN SELECT RAISE(ABORT, 'decisions are never changed'); END;
COMMIT;
