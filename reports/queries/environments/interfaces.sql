-- title: Network interfaces
-- row: one cell at one interface of a rank's network: what passed it from before the cell to after it, by the kernel's
--   counters (or an RDMA port's), sums over launches
-- needs: ranks of our own worker or trainer; tables of other programs do not say it
-- columns:
--   @axes launches rank
--   interface | text | where anything passed: eth0, mlx5_0/1
--   rx_bytes | bytes, integer | came in, with headers
--   tx_bytes | bytes, integer | went out, with headers
--   rx_packets | integer | that came in
--   tx_packets | integer | that went out
--   drops | integer | of packets, both ways
--   errors | integer | both ways
--   tcp_bytes | bytes, integer | this rank sent by TCP meanwhile, by its sockets' counters, over all interfaces
--   step_tx_bytes | bytes, real | training: went out in a measured step, mean
--   plan_bytes | bytes, real | training: what this rank's plan sends in a step, mean
-- Ranks that share a network namespace see the same counters, which count everyone in it. Warm-up, checks and a training's
-- cost table are in the cell's sums; a measured step's have none of them. What goes through shared memory passes no interface.
-- A rank's record has all its cells, so that it is taken apart once, not for each cell.
WITH counted AS MATERIALIZED (
  SELECT * FROM v_measurement WHERE run_row = ?1 AND counts
),
cells_of_rank AS MATERIALIZED (
  SELECT t.launch_id, t.rank, c.key AS cell_id, c.value ->> '$.tcp_bytes' AS tcp_bytes, c.value -> '$.network' AS network
  FROM transport t, json_each(t.details_json, '$.cells') c
  WHERE t.launch_id IN (SELECT launch_row FROM counted) AND c.type = 'object'
),
seen AS (
  SELECT v.*, r.rank, n.key AS interface, n.value AS passed, r.tcp_bytes, g.wire_bytes,
         (SELECT s.value ->> '$.tx_bytes' FROM json_each(w.network, '$.interfaces') s WHERE s.key = n.key)
           * 1.0 / (w.network ->> '$.steps') AS step_bytes
  FROM counted v
  JOIN cells_of_rank r ON r.launch_id = v.launch_row AND r.cell_id = v.cell_id
  LEFT JOIN v_training_rank w ON w.measurement_row = v.measurement_row AND w.rank = r.rank
  LEFT JOIN training g ON g.measurement_id = v.measurement_row AND g.rank = r.rank,
  json_each(r.network) n
)
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, algorithm, in_place,
       group_knobs, cell_knobs, count(*) AS launches, rank, interface, sum(passed ->> '$.rx_bytes') AS rx_bytes,
       sum(passed ->> '$.tx_bytes') AS tx_bytes, sum(passed ->> '$.rx_packets') AS rx_packets,
       sum(passed ->> '$.tx_packets') AS tx_packets, sum((passed ->> '$.rx_drops') + (passed ->> '$.tx_drops')) AS drops,
       sum((passed ->> '$.rx_errors') + (passed ->> '$.tx_errors')) AS errors, sum(tcp_bytes) AS tcp_bytes,
       avg(step_bytes) AS step_tx_bytes, avg(wire_bytes) AS plan_bytes
FROM seen
GROUP BY cell_row, rank, interface
ORDER BY environment, backend, architecture, collective, size_bytes, ranks, cell_row, rank, interface
