-- title: Noise gate
-- row: one launch: what its surroundings did, and what was beyond the run's limits; flagged ones stay in the figures
-- columns:
--   run_id environment backend architecture ranks group_knobs block attempt status
--   noise | text | noisy (flagged), quiet or not judged
--   busy_before | real, if_room | processors that others used before
--   waited_s | s, real, if_room | waited for them to calm down
--   busy_during | real | processors that others used meanwhile
--   steal_during | real | share stolen by the hypervisor
--   waited | real | of its time that the rank which waited most had no core: half of the launch's cells less
--   waited_most | real, if_room | the same of the cell in which it was most
--   nice | text, if_room | of the ranks, the lower the more of a core they get in their group
--   group_weight | text, if_room | what the ranks' control group gets next to others, 1 = as much as a group usually does
--   autogroup | text, if_room | with which the ranks' tasks share as one where autogroups are on
--   psi_cpu_during | real | share of the time in which tasks waited for a processor
--   throttled_periods | integer, if_room | of the cgroup
--   flags | text | what was beyond the limits
WITH own AS (SELECT launch_row FROM v_launch WHERE run_row = ?1),
waits AS (
  SELECT launch_id, avg(waited_share) FILTER (WHERE 2 * place IN (cells, cells + 1, cells + 2)) AS waited,
         max(waited_share) AS waited_most
  FROM (SELECT launch_id, waited_share, count(*) OVER (PARTITION BY launch_id) AS cells,
               row_number() OVER (PARTITION BY launch_id ORDER BY waited_share) AS place
        FROM measurement WHERE waited_share IS NOT NULL AND launch_id IN own)
  GROUP BY launch_id
),
standing AS (
  SELECT launch_id, group_concat(DISTINCT facts_json ->> '$.process.nice') AS nice,
         group_concat(DISTINCT facts_json ->> '$.cgroup.cpu_weight') AS group_weight,
         group_concat(DISTINCT facts_json ->> '$.process.autogroup') AS autogroup
  FROM launch_rank WHERE launch_id IN own GROUP BY launch_id
)
SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, v.block, v.attempt,
       v.launch_status AS status,
       CASE WHEN v.noise_flags_json IS NULL THEN 'not judged' WHEN v.noisy THEN 'noisy'
            ELSE 'quiet' END AS noise,
       l.noise_before_json ->> '$.window.busy_share' AS busy_before,
       l.noise_before_json ->> '$.window.waited_s' AS waited_s,
       l.noise_during_json ->> '$.busy_share' AS busy_during,
       l.noise_during_json ->> '$.steal_share' AS steal_during,
       w.waited, w.waited_most, k.nice, k.group_weight, k.autogroup,
       l.noise_during_json ->> '$.psi_cpu_share' AS psi_cpu_during,
       l.noise_during_json ->> '$.throttled_periods' AS throttled_periods,
       (SELECT group_concat(value, '; ') FROM json_each(v.noise_flags_json)) AS flags
FROM v_launch v
JOIN launch l ON l.id = v.launch_row
LEFT JOIN waits w ON w.launch_id = v.launch_row
LEFT JOIN standing k ON k.launch_id = v.launch_row
WHERE v.run_row = ?1
ORDER BY v.launch_row
