-- title: Decisions
-- row: one choice of a setting for a task: who chose it, why it could, and what came of it (E-102)
SELECT r.uuid AS run_id, t.mode, t.agent, t.policy_version, t.seed, d.environment, d.regime,
       d.task_key, d.step, d.kind, d.arm, d.propensity, d.guard, d.time_us,
       d.reference_us / d.time_us AS speedup, d.reward,
       json_extract(d.reward_json, '$.base') AS reward_base,
       json_extract(d.candidates_json, '$.arms') AS arms, d.epoch, d.calls,
       d.applied_json AS applied, l.uuid AS launch_id
FROM decision d
JOIN tuning t ON t.id = d.tuning_id
JOIN run r ON r.id = t.run_id
LEFT JOIN launch l ON l.id = d.launch_id
WHERE t.run_id = ?1
ORDER BY t.id, d.environment, d.task_key, d.step, d.id
