-- title: Regimes
-- row: one detected regime per environment and backend of a run
-- columns:
--   run_id
--   regime_id | text | digest of what was detected
--   regime environment backend launches transports
--   worst_pair | text | the least that any pair of ranks shares: die, socket, node, switch, rack, zone; apart: other zones; network: other nodes, nothing further known
--   pairs | text | share of the pairs of ranks at each place
--   declared | text | what the experiment's [machine] says of topology and deployment, not detected
SELECT v.run_id, v.regime_id, v.regime_name AS regime, v.environment, v.backend,
       count(*) AS launches,
       (SELECT group_concat(DISTINCT t.transport) FROM transport t
         JOIN launch l ON l.id = t.launch_id
         JOIN v_launch o ON o.launch_row = l.id
        WHERE o.run_row = v.run_row AND o.regime_id IS v.regime_id
          AND o.environment = v.environment AND o.backend = v.backend) AS transports,
       group_concat(DISTINCT d.regime ->> '$.pairs.worst') AS worst_pair,
       group_concat(DISTINCT (SELECT group_concat(printf('%.3g %% %s', m.value * 100, m.key), ' + ')
                                FROM json_each(d.regime, '$.pairs.mix') m)) AS pairs,
       group_concat(DISTINCT d.regime ->> '$.declared') AS declared
FROM v_launch v
LEFT JOIN (SELECT id, CASE WHEN json_valid(regime_json) THEN regime_json END AS regime
             FROM launch) d ON d.id = v.launch_row
WHERE v.run_row = ?1 AND v.launch_status = 'ok'
GROUP BY v.run_row, v.regime_id, v.environment, v.backend
ORDER BY v.environment, v.backend, v.regime_name
