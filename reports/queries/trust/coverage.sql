-- title: Coverage
-- row: one planned cell and what became of it; launches counts those that enter figures, with those that the noise gate flagged
-- columns:
--   @axes launches status reason
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, algorithm, in_place,
       group_knobs, cell_knobs, launches, status,
       CASE WHEN noisy_launches = 0 THEN reason
            ELSE coalesce(reason || '; ', '') || noisy_launches || ' of ' || launches
                 || ' launches flagged by the noise gate' END AS reason
FROM v_cell
WHERE run_row = ?1
ORDER BY environment, backend, architecture, collective, size_bytes, ranks
