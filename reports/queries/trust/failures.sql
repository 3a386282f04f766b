-- title: Failures
-- row: an attempt to start a group that did not end well, or cells of a group without a result, by reason
-- none_means: all that was planned came to its end
-- columns:
--   run_id
--   what | text | launch or cells
--   environment backend architecture ranks group_knobs block attempt cells status reason
SELECT run_id, 'launch' AS what, environment, backend, architecture, ranks, group_knobs, block, attempt,
       NULL AS cells, launch_status AS status, reason
FROM v_launch
WHERE run_row = ?1 AND launch_status NOT IN ('ok', 'running')
UNION ALL
SELECT run_id, 'cells' AS what, environment, backend, architecture, ranks, group_knobs, NULL, NULL,
       count(*), status, reason
FROM v_cell
WHERE run_row = ?1 AND status NOT IN ('ok', 'planned')
GROUP BY run_id, environment, backend, architecture, ranks, group_knobs, status, reason
ORDER BY 1, 2 DESC, 3, 4, 5, 6, 7, 8, 9
