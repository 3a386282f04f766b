-- title: Transports
-- row: a transport really used by ranks of an environment and backend; bytes are sums over launches
-- needs: ranks of our own worker or trainer; tables of other programs do not say it
-- columns:
--   run_id environment backend architecture
--   transport | text | what carried data
--   launches
--   ranks_using_it | integer | ranks that used it in any of the launches
--   payload_bytes | bytes, integer | sent by it, sum over launches
--   tcp_bytes | bytes, integer | by TCP, as the kernel counted
--   cma_bytes | bytes, integer | by single copies between processes
--   cma_errors | integer | of those that failed
--   evidence | text | how that is known, in the words of one of the launches
SELECT v.run_id, v.environment, v.backend, v.architecture, t.transport,
       count(DISTINCT v.launch_row) AS launches, count(DISTINCT t.rank) AS ranks_using_it,
       sum(t.payload_bytes) AS payload_bytes, sum(t.tcp_bytes) AS tcp_bytes,
       sum(t.cma_bytes) AS cma_bytes, sum(t.cma_errors) AS cma_errors, min(t.evidence) AS evidence
FROM v_launch v
JOIN transport t ON t.launch_id = v.launch_row
WHERE v.run_row = ?1 AND v.launch_status = 'ok'
GROUP BY v.run_row, v.environment, v.backend, v.architecture, t.transport
ORDER BY v.environment, v.backend, v.architecture, t.transport
