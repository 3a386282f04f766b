-- title: Runs
-- row: one run, newest first
-- columns:
--   run_id
--   name | text | of the experiment
--   status
--   started_utc | text | when it began
--   ended_utc | text, if_room | when it ended
--   groups | integer, if_room | planned groups
--   cells | integer | planned cells
--   attempts | integer, if_room | launches tried
--   launches_ok | integer | launches that count
--   imported_format | text, if_room | of a foreign table
--   tool_version | text, if_room | the program that made it
-- scope: all
SELECT run_id, run_name AS name, run_status AS status, started_utc, ended_utc, groups, cells,
       attempts, launches_ok, imported_format, tool_version
FROM v_run
WHERE run_row = ?1
