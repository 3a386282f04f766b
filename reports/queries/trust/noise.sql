-- title: Noise gate
-- row: one launch: what its surroundings did, and what was beyond the run's limits; flagged ones stay in the figures
-- columns:
--   run_id environment backend architecture ranks group_knobs block attempt status
--   noise | text | noisy (flagged), quiet or not judged
--   busy_before | real | processors that others used before
--   waited_s | s, real | waited for them to calm down
--   busy_during | real | processors that others used meanwhile
--   steal_during | real | share stolen by the hypervisor
--   psi_cpu_during | real | share of the time in which tasks waited for a processor
--   throttled_periods | integer | of the cgroup
--   flags | text | what was beyond the limits
SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, v.block, v.attempt,
       v.launch_status AS status,
       CASE WHEN v.noise_flags_json IS NULL THEN 'not judged' WHEN v.noisy THEN 'noisy'
            ELSE 'quiet' END AS noise,
       l.noise_before_json ->> '$.window.busy_share' AS busy_before,
       l.noise_before_json ->> '$.window.waited_s' AS waited_s,
       l.noise_during_json ->> '$.busy_share' AS busy_during,
       l.noise_during_json ->> '$.steal_share' AS steal_during,
       l.noise_during_json ->> '$.psi_cpu_share' AS psi_cpu_during,
       l.noise_during_json ->> '$.throttled_periods' AS throttled_periods,
       (SELECT group_concat(value, '; ') FROM json_each(v.noise_flags_json)) AS flags
FROM v_launch v
JOIN launch l ON l.id = v.launch_row
WHERE v.run_row = ?1
ORDER BY v.launch_row
