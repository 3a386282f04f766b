CREATE TABLE tuning (
  id INTEGER PRIMARY KEY,         -- row key; grows with time
  run_id INTEGER NOT NULL REFERENCES run(id),  -- run whose launches it asked for or draws from
  mode TEXT NOT NULL CHECK (mode IN ('live', 'replay', 'job')),  -- live: fresh launches; replay: launches stored by a sweep; job: inside a running job
  agent TEXT NOT NULL,            -- "bandit", "ppo", "coordinate-descent", ...
  policy_version TEXT,            -- digest of the policy's weights; NULL for an agent without a policy
  seed TEXT NOT NULL,             -- random seed of the agent, unsigned 64 bit as decimal text
  options_json TEXT NOT NULL,     -- the agent's options and the reward's weights
  started_utc TEXT NOT NULL       -- when it was stored
) STRICT;
CREATE INDEX tuning_run ON tuning(run_id);
CREATE TABLE decision (
  id INTEGER PRIMARY KEY,         -- row key; grows with time
  tuning_id INTEGER NOT NULL REFERENCES tuning(id),  -- whose choice
  task_key TEXT NOT NULL,         -- "openmpi/ring/allreduce/2^16/r2n1"
  environment TEXT NOT NULL,      -- profile
  regime TEXT NOT NULL,           -- stable id of the detected regime
  step INTEGER NOT NULL CHECK (step >= 0),  -- place among the task's choices, from 0
  kind TEXT NOT NULL CHECK (kind IN ('reference', 'explore', 'exploit', 'final')),  -- reference: the default, measured to compare with; final: what was left in force
  epoch INTEGER NOT NULL,         -- of the configuration table it belongs to
  arm TEXT NOT NULL,              -- the setting, for people
  propensity REAL NOT NULL CHECK (propensity > 0 AND propensity <= 1),  -- probability of this choice
  state_json TEXT NOT NULL,       -- state vector, known features only
  candidates_json TEXT NOT NULL,  -- action space: knobs with values and masks, number of arms
  guard TEXT NOT NULL,            -- "pass", or what a guard said
  asked_json TEXT NOT NULL,       -- settings asked for
  applied_json TEXT,              -- settings read back; NULL when nothing could be read
  calls INTEGER NOT NULL CHECK (calls >= 0),  -- calls under the choice, count
  time_us REAL,                   -- typical time of one call; NULL when it failed
  reference_us REAL,              -- the same under the library's default
  reward REAL,                    -- sum of the terms; NULL when there is none
  reward_json TEXT,               -- the terms, each after its weight
  launch_id INTEGER REFERENCES launch(id)  -- where it was measured; NULL for a choice that was not
) STRICT;
CREATE INDEX decision_tuning ON decision(tuning_id);
CREATE INDEX decision_launch ON decision(launch_id);
