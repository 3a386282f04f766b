-- title: Runs
-- row: one run, newest first
-- scope: all
SELECT run_id, run_name AS name, run_status AS status, started_utc, ended_utc, groups, cells,
       attempts, launches_ok, imported_format, tool_version
FROM v_run
WHERE run_row = ?1
