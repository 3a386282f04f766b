-- title: Trace of a search
-- row: one step of a search for one task: what was tried, the best time so far against the default's (unconfirmed until the final choice), and when another configuration table came into force
-- columns:
--   run_id mode agent environment regime
--   regime_id | text, quiet | digest of what was detected
--   task_key step kind arm
--   guard | text, optional | as in query decisions
--   time_us
--   best_so_far_us | us, real | the best up to here
--   default_us | us, real | of the library's default
--   improved_percent | percent, real | the best against the default
--   epoch
--   broadcast | text, optional | "new table" where another table came into force for this step
-- A final row is the search's answer, which nothing is measured by any more; its epoch is of the table that holds it.
WITH d AS (
  SELECT d.*, t.run_id, t.mode, t.agent,
         min(d.time_us) OVER task AS best_so_far_us,
         lag(d.epoch) OVER task AS epoch_before,
         coalesce(d.reference_us, max(CASE WHEN d.kind = 'reference' THEN d.time_us END) OVER task)
           AS default_us
  FROM decision d JOIN tuning t ON t.id = d.tuning_id
  WHERE t.run_id = ?1
  WINDOW task AS (PARTITION BY d.tuning_id, d.environment, d.task_key ORDER BY d.step, d.id)
)
SELECT (SELECT uuid FROM run WHERE id = ?1) AS run_id, mode, agent, environment,
       coalesce((SELECT g.name FROM regime g WHERE g.key = d.regime), d.regime) AS regime,
       d.regime AS regime_id, task_key,
       step, kind, arm,
       CASE WHEN kind <> 'final' AND guard = 'slower-than-default' THEN 'slower-in-trial' ELSE guard END AS guard, time_us, best_so_far_us, default_us,
       -- Rounded: a default's own time, stored as a power, is off in the last digit.
       -- The final choice is measured anew; where a guard took it back, the default is in force. Of a table that is
       -- judged (tune --apply) nothing is taken back.
       CASE WHEN kind <> 'final' THEN round(100.0 * (1 - best_so_far_us / default_us), 9) + 0.0
            WHEN guard <> 'pass' AND agent <> 'table' THEN 0.0
            ELSE 100.0 * (1 - time_us / default_us) END AS improved_percent, epoch,
       CASE WHEN kind <> 'final' AND epoch <> epoch_before THEN 'new table' END AS broadcast
FROM d
ORDER BY tuning_id, environment, task_key, step, id
