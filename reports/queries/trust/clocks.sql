-- title: Clocks
-- row: one rank of one launch: its clock against rank 0's, before and after the cells
-- needs: ranks of our own worker; tables of other programs have no clocks
-- columns:
--   run_id environment backend architecture ranks group_knobs block attempt rank
--   clock | text | one clock that all ranks share, or ping-pong, by which they were compared
--   clock_offset_us | us, real | before the cells
--   clock_error_us | us, real | its error
--   clock_end_offset_us | us, real | after the cells
--   clock_end_error_us | us, real | its error
SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, v.block, v.attempt, k.rank,
       CASE k.clock_shared WHEN 1 THEN 'one clock' WHEN 0 THEN 'ping-pong' END AS clock,
       k.clock_offset_us, k.clock_error_us, k.clock_end_offset_us, k.clock_end_error_us
FROM v_launch v
JOIN launch_rank k ON k.launch_id = v.launch_row
WHERE v.run_row = ?1 AND k.clock_shared IS NOT NULL
ORDER BY v.launch_row, k.rank
