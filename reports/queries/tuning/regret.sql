-- title: Regret of a search
-- row: one step of a search, over its tasks: how far the best setting seen so far is from the best that any search of the run saw (0 = found)
-- columns:
--   run_id mode agent
--   evaluations | integer | measurements so far
--   tasks | integer | searched for
--   mean_regret_percent | percent, real | distance from the best any search saw, mean over tasks
--   worst_regret_percent | percent, real | of the worst task
--   found_percent | percent, real | tasks whose best was found
WITH d AS (
  SELECT d.*, t.run_id, t.mode, t.agent, t.seed
  FROM decision d JOIN tuning t ON t.id = d.tuning_id
  WHERE t.run_id = ?1 AND d.time_us IS NOT NULL AND d.kind <> 'final'
),
arm AS (SELECT environment, task_key, arm, avg(time_us) AS time_us FROM d GROUP BY 1, 2, 3),
oracle AS (SELECT environment, task_key, min(time_us) AS best_us FROM arm GROUP BY 1, 2),
reached AS (
  -- An arm counts with its mean over the run, so that one lucky launch is no success.
  SELECT d.run_id, d.mode, d.agent, d.tuning_id, d.environment, d.task_key, d.step,
         min(a.time_us) OVER (PARTITION BY d.tuning_id, d.environment, d.task_key
                              ORDER BY d.step) / o.best_us - 1 AS regret
  FROM d
  JOIN arm a ON a.environment = d.environment AND a.task_key = d.task_key AND a.arm = d.arm
  JOIN oracle o ON o.environment = d.environment AND o.task_key = d.task_key
)
SELECT (SELECT uuid FROM run WHERE id = ?1) AS run_id, mode, agent, step + 1 AS evaluations,
       count(*) AS tasks, 100.0 * avg(regret) AS mean_regret_percent,
       100.0 * max(regret) AS worst_regret_percent,
       100.0 * avg(regret <= 0.02) AS found_percent
FROM reached
GROUP BY mode, agent, step
ORDER BY mode, agent, step
