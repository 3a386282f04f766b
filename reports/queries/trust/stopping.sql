-- title: Stopping
-- row: one group of a run with a target interval or a time budget: how its launches came to an end
-- needs: a run with a rule of when to stop
-- measured_by: run experiments/quickstart.toml --set protocol.target_interval=0.05
-- columns:
--   run_id environment backend architecture ranks group_knobs launches
--   stopped_by | text | what ended it
--   reached | text | whether the target was reached: yes or no
--   target_interval | real | half-width asked for, relative
--   widest_interval | real | the widest of its cells
--   wide_cells | integer | cells that missed the target
--   cells
--   widest_cell | text | which it is
SELECT r.uuid AS run_id, p.environment, g.backend, g.architecture, g.ranks,
       g.knobs_json AS group_knobs,
       g.stopping_json ->> '$.launches' AS launches,
       g.stopping_json ->> '$.stopped_by' AS stopped_by,
       CASE g.stopping_json ->> '$.reached' WHEN 1 THEN 'yes' ELSE 'no' END AS reached,
       g.stopping_json ->> '$.target_interval' AS target_interval,
       g.stopping_json ->> '$.widest' AS widest_interval,
       g.stopping_json ->> '$.wide_cells' AS wide_cells,
       g.stopping_json ->> '$.cells' AS cells,
       g.stopping_json ->> '$.widest_cell' AS widest_cell
FROM plan_group g
JOIN run r ON r.id = g.run_id
JOIN profile p ON p.id = g.profile_id
WHERE g.run_id = ?1 AND g.stopping_json IS NOT NULL
ORDER BY g.id
