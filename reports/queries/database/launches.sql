-- title: Launches
-- row: one attempt to start a group
-- columns:
--   run_id environment backend architecture ranks group_knobs block attempt
--   position | integer | place in the round
--   status
--   duration_s | s, real | from start to end
--   exit_code | integer | of the launcher
--   signal | integer | that ended it
--   regime reason launch_id
--   argv_json | json | its command
SELECT run_id, environment, backend, architecture, ranks, group_knobs, block, attempt, position,
       launch_status AS status, duration_s, exit_code, signal, regime_name AS regime, reason,
       launch_id, argv_json
FROM v_launch
WHERE run_row = ?1
ORDER BY block, position, attempt
