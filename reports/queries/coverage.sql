-- title: Coverage
-- row: one planned cell and what became of it; launches counts those that enter figures
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, launches, status,
       reason
FROM v_cell
WHERE run_row = ?1
ORDER BY environment, backend, architecture, collective, size_bytes, ranks
