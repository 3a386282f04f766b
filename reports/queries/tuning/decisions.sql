-- title: Decisions
-- row: one choice of a setting for a task: who chose it, why it could, and what came of it
-- columns:
--   run_id mode agent
--   policy_version | text | of a trained agent
--   seed | integer | of its random numbers
--   environment regime
--   regime_id | text, quiet | digest of what was detected
--   task_key step kind arm
--   propensity | real | chance with which the agent chose it
--   guard | text, optional | what a guard said of it; slower-in-trial: in its one launch or trial, which says less than a final row
--   time_us
--   speedup | real | the default's time over its
--   reward | real | what the agent received
--   reward_base | real | its part that settings change: minus the time over the default's
--   arms | integer | settings to choose from
--   tried | integer | of these, measured by the search; of its final choice
--   epoch
--   calls | integer | calls that were measured
--   applied | text | what was in force when it was measured
--   launch_id
SELECT r.uuid AS run_id, t.mode, t.agent, t.policy_version, t.seed, d.environment,
       coalesce((SELECT g.name FROM regime g WHERE g.key = d.regime), d.regime) AS regime,
       d.regime AS regime_id, d.task_key, d.step, d.kind, d.arm, d.propensity,
       CASE WHEN d.kind <> 'final' AND d.guard = 'slower-than-default' THEN 'slower-in-trial' ELSE d.guard END AS guard, d.time_us,
       d.reference_us / d.time_us AS speedup, d.reward,
       json_extract(d.reward_json, '$.base') AS reward_base,
       json_extract(d.candidates_json, '$.arms') AS arms,
       json_extract(d.candidates_json, '$.tried') AS tried, d.epoch, d.calls,
       d.applied_json AS applied, l.uuid AS launch_id
FROM decision d
JOIN tuning t ON t.id = d.tuning_id
JOIN run r ON r.id = t.run_id
LEFT JOIN launch l ON l.id = d.launch_id
WHERE t.run_id = ?1
ORDER BY t.id, d.environment, d.task_key, d.step, d.id
