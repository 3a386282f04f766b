-- title: Regimes
-- row: one detected regime per environment and backend of a run
-- columns:
--   run_id
--   regime_id | text | digest of what was detected
--   regime environment backend launches transports
SELECT v.run_id, v.regime_id, v.regime_name AS regime, v.environment, v.backend,
       count(*) AS launches,
       (SELECT group_concat(DISTINCT t.transport) FROM transport t
         JOIN launch l ON l.id = t.launch_id
         JOIN v_launch o ON o.launch_row = l.id
        WHERE o.run_row = v.run_row AND o.regime_id IS v.regime_id
          AND o.environment = v.environment AND o.backend = v.backend) AS transports
FROM v_launch v
WHERE v.run_row = ?1 AND v.launch_status = 'ok'
GROUP BY v.run_row, v.regime_id, v.environment, v.backend
ORDER BY v.environment, v.backend, v.regime_name
