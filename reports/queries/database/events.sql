-- title: Events
-- row: something worth knowing that happened during a run
-- none_means: nothing out of the ordinary was noted
-- columns:
--   run_id
--   at_utc | text | when
--   kind launch_id
--   message | text | what happened
SELECT r.uuid AS run_id, e.at_utc, e.kind, l.uuid AS launch_id, e.message
FROM event e
JOIN run r ON r.id = e.run_id
LEFT JOIN launch l ON l.id = e.launch_id
WHERE e.run_id = ?1
ORDER BY e.id
